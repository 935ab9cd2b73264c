"""`hardstep maxsat`: search an assignment, and print it as the Max-SAT Evaluation asks.

stdout    c comments, o each improvement, s status, v the assignment (one digit per variable)
stderr    progress
"""

import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hardstep import __version__
from hardstep._checks import check_name
from hardstep._durations import format_duration
from hardstep._files import provenance
from hardstep.cli.interrupts import Interrupts
from hardstep.cli.options import MaxsatOptions
from hardstep.cli.output import print
from hardstep.errors import ConfigError
from hardstep.maxsat import Formula, random_ksat, read
from hardstep.maxsat.local import local_search
from hardstep.maxsat.objective import Standing
from hardstep.maxsat.search import INTERRUPTED, Progress, Search, SearchResult
from hardstep.training import LiveLine

SECONDS = 60.0  # unless a limit is given
POLISH_SHARE = 0.5  # of the seconds, with --polish
SEARCHES: dict[str, Callable[[Formula, int], Search]] = {"signs": Search, "paper": Search.of_paper}
FLIPS_PER_VARIABLE = 100  # of a polish after --steps
DIGITS_AT_ONCE = 1 << 20  # of an assignment that is printed


def run_maxsat(options: MaxsatOptions) -> int:
    """Search and report; returns the exit code."""
    _check(options)
    formula = _make_formula(options)
    with Interrupts() as interrupts:
        try:
            found = _run(options, formula, _Output(formula, interrupts, quiet=options.json))
        except KeyboardInterrupt:
            _drop_output()
            raise
    return 130 if found.stopped == INTERRUPTED else 0


def _run(options: MaxsatOptions, formula: Formula, output: "_Output") -> SearchResult:
    output.comment(f"hardstep {__version__}")
    output.comment(
        f"{formula.num_variables:,} variables, {formula.num_clauses:,} clauses, "
        f"{formula.num_hard:,} of them hard, seed {options.seed}"
    )
    began = time.perf_counter()
    found, flips = _find(options, formula, output)
    output.close()
    result = _describe(options, formula, found, flips, time.perf_counter() - began)
    if options.json:
        output.digits(json.dumps(result)[:-1] + ', "assignment": "', found.assignment, '"}\n')
    else:
        _report(result, found, output)
    return found


def _find(options: MaxsatOptions, formula: Formula, output: "_Output") -> tuple[SearchResult, int]:
    """The best assignment and the flips of its polish; after a signal, the best until then."""
    flips = 0
    try:
        with output.interrupts.raised():
            found = _search(options, formula, output)
            if options.polish and found.stopped not in (INTERRUPTED, "satisfied", "target"):
                found, flips = _polish(options, formula, found, output)
    except KeyboardInterrupt:
        if output.found is None:
            raise
        standing, assignment = output.found
        steps, planned, evaluations, seconds = output.taken
        found = SearchResult(
            standing, assignment, steps, planned, evaluations, seconds, INTERRUPTED
        )
    return found, flips


def _describe(
    options: MaxsatOptions, formula: Formula, found: SearchResult, flips: int, seconds: float
) -> dict[str, Any]:
    """What --json shows, but for the assignment."""
    return {
        "instance": str(options.file) if options.file else f"random {options.random}",
        "ratio": None if options.file else options.ratio,
        "variables": formula.num_variables,
        "clauses": formula.num_clauses + formula.num_tautologies,
        "hard": formula.num_hard,
        "falsified_weight": found.standing.weight,
        "falsified_hard": found.standing.hard,
        "satisfied_share": formula.satisfied_share(found.assignment),
        "seed": options.seed,
        "preset": options.preset,
        "steps": found.steps,
        "planned_steps": found.planned_steps,
        "evaluations": found.evaluations,
        "polish_flips": flips,
        "seconds": seconds,
        "stopped": found.stopped,
        **provenance(),
    }


def _check(options: MaxsatOptions) -> None:
    if (options.file is None) == (options.random is None):
        raise ConfigError("maxsat needs a file or --random N, and not both")
    if options.seconds is not None and options.steps is not None:
        raise ConfigError("maxsat takes --seconds or --steps, not both")
    check_name(options.preset, SEARCHES, "preset")
    if options.seconds is not None and not options.seconds > 0:
        raise ConfigError(f"--seconds must be above 0, got {options.seconds}")


def _make_formula(options: MaxsatOptions) -> Formula:
    if options.file is not None:
        return read(options.file)
    assert options.random is not None
    return random_ksat(options.random, ratio=options.ratio, seed=options.seed)


def _target(options: MaxsatOptions) -> Standing | None:
    return None if options.target is None else Standing(0, options.target)


def _search(options: MaxsatOptions, formula: Formula, output: "_Output") -> SearchResult:
    search = SEARCHES[options.preset](formula, options.seed)
    seconds = None if options.steps else options.seconds or SECONDS
    if seconds is not None and options.polish:
        seconds *= 1 - POLISH_SHARE
    try:
        steps = options.steps or search.steps_within(seconds or SECONDS)
    except KeyboardInterrupt:  # the start is evaluated, and reported
        return search.run(0, watch=output.step)._replace(stopped=INTERRUPTED)
    if not options.steps:
        output.comment(f"{steps:,} steps planned; --steps {steps} repeats this run exactly")
    output.live.start(steps)
    output.seconds = seconds
    return search.run(steps, seconds=seconds, target=_target(options), watch=output.step)


def _polish(
    options: MaxsatOptions, formula: Formula, found: SearchResult, output: "_Output"
) -> tuple[SearchResult, int]:
    """Hand the best assignment to local search."""
    seconds = None if options.steps else POLISH_SHARE * (options.seconds or SECONDS)
    flips = FLIPS_PER_VARIABLE * formula.num_variables if options.steps else None
    limit = f"{flips:,} flips" if seconds is None else format_duration(seconds)
    output.comment(f"polishing by local search (probSAT), at most {limit}")
    polished = local_search(
        formula,
        found.assignment,
        options.seed,
        seconds=seconds,
        flips=flips,
        target=_target(options),
        report=output.improved,
    )
    better = found._replace(standing=polished.standing, assignment=polished.assignment)
    if polished.interrupted:
        better = better._replace(stopped=INTERRUPTED)
    return better, polished.flips


def _format_digits(assignment: NDArray[np.bool_]) -> Iterator[str]:
    """One digit per variable, a few at a time: a formula may have a billion."""
    for first in range(0, assignment.size, DIGITS_AT_ONCE):
        values = assignment[first : first + DIGITS_AT_ONCE].view(np.uint8)
        yield (values + np.uint8(ord("0"))).tobytes().decode("ascii")


class _Output:
    """Lines on stdout as they come, a live line on stderr; and the best found so far."""

    def __init__(self, formula: Formula, interrupts: Interrupts, quiet: bool) -> None:
        self.formula, self.interrupts, self.quiet = formula, interrupts, quiet
        self.live = LiveLine()
        self.found: tuple[Standing, NDArray[np.bool_]] | None = None
        self.taken = (0, 0, 0, 0.0)  # steps, planned steps, evaluations, seconds
        self.seconds: float | None = None  # that the search may take

    def line(self, text: str) -> None:
        if not self.quiet:
            self._write(f"{text}\n")

    def digits(self, before: str, assignment: NDArray[np.bool_], after: str) -> None:
        """A line with an assignment."""
        for text in chain([before], _format_digits(assignment), [after]):
            self._write(text)

    def _write(self, text: str) -> None:
        self.interrupts.write(_print, text)

    def comment(self, text: str) -> None:
        self.line(f"c {text}")

    def improved(self, standing: Standing, assignment: NDArray[np.bool_]) -> None:
        """An `o` line for a better assignment; it must satisfy the hard clauses for that."""
        if self.found is not None and standing >= self.found[0]:
            return
        self.found = standing, assignment
        if standing.hard == 0:
            self.line(f"o {standing.weight}")

    def step(self, progress: Progress, better: NDArray[np.bool_] | None) -> None:
        self.taken = (progress.step, progress.steps, progress.evaluations, progress.seconds)
        if better is not None:
            self.improved(progress.best, better)
        rate = progress.evaluations / max(progress.seconds, 1e-9)
        hard = f"  hard falsified {progress.best.hard:,}" if self.formula.num_hard else ""
        self.live.show(
            progress.step,
            progress.steps,
            f"falsified {progress.here.weight:,}  best {progress.best.weight:,}{hard}  "
            f"{rate:,.0f} evals/s",
            None if self.seconds is None else max(0.0, self.seconds - progress.seconds),
        )

    def close(self) -> None:
        self.live.close()


def _report(result: dict[str, Any], found: SearchResult, output: _Output) -> None:
    """The last lines."""
    output.comment(
        f"{100 * result['satisfied_share']:.3f} % of the clauses hold; {result['steps']:,} steps, "
        f"{result['evaluations']:,} evaluations, {result['polish_flips']:,} flips, "
        f"{result['seconds']:.1f} s; stopped by {result['stopped']}"
    )
    if found.standing.hard:
        output.comment(
            f"the best assignment found FALSIFIES {found.standing.hard:,} of "
            f"{result['hard']:,} hard clauses, so it is no solution and is not printed; "
            "--json shows it"
        )
        output.line("s UNKNOWN")
        return
    satisfied = found.standing == (0, 0)
    output.line("s SATISFIABLE" if satisfied else "s UNKNOWN")
    output.digits("v ", found.assignment, "\n")


def _print(text: str) -> None:
    print(text, end="", flush=True)


def _drop_output() -> None:
    """Send what is still to be written nowhere: nobody reads it, and the exit would wait."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
