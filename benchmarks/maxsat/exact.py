"""RC2 with a time limit: in a process that can be ended."""

import multiprocessing as mp
import time
from queue import Empty
from typing import Any

import numpy as np

from hardstep.maxsat import Formula


def _signed(formula: Formula) -> list[list[int]]:
    """Clauses as signed variables counted from 1."""
    variables = (formula.literals >> 1) + 1
    signed = np.where(formula.literals & 1, -variables, variables)
    return [part.tolist() for part in np.split(signed, formula.starts[1:-1])]


def _solve(formula: Formula, answers: Any) -> None:
    from pysat.examples.rc2 import RC2
    from pysat.formula import WCNF

    wcnf = WCNF()
    hard = formula.hard if formula.hard is not None else np.zeros(formula.num_clauses, bool)
    for clause, weight, must in zip(_signed(formula), formula.weights, hard, strict=True):
        wcnf.append(clause, weight=None if must else int(weight))
    with RC2(wcnf) as solver:
        solver.compute()
        answers.put(int(solver.cost))


def solve(formula: Formula, seconds: float) -> dict[str, Any]:
    """The optimum, or that none was proven in time."""
    context = mp.get_context("spawn")
    answers = context.Queue()
    process = context.Process(target=_solve, args=(formula, answers), daemon=True)
    began = time.perf_counter()
    process.start()
    try:
        cost = answers.get(timeout=seconds)
    except Empty:
        cost = None
    process.kill()
    return {"falsified": cost, "proven": cost is not None,
            "search_seconds": time.perf_counter() - began}  # fmt: skip
