"""Threads of a search: a process may be forked after it, and pieces change no bit."""

import subprocess
import sys
import time

import numpy as np
import pytest
import torch

from hardstep.maxsat import Formula, Search, local, pieces, random_ksat

FORK = """
import os
import torch
from hardstep.maxsat import Search, random_ksat

torch.set_num_threads(2)
formula = random_ksat(300, seed=0)
before = Search(formula, 1).run(3).assignment
child = os.fork()
if child == 0:
    os._exit(0 if (Search(formula, 1).run(3).assignment == before).all() else 3)
raise SystemExit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@pytest.mark.skipif(not hasattr(__import__("os"), "fork"), reason="no fork here")
def test_a_child_that_is_forked_after_a_search_can_search_as_well():
    # Python 3.12 and later warn of every fork beside threads.
    command = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", FORK]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")


def test_the_size_of_pieces_and_the_number_of_threads_change_no_bit(monkeypatch):
    formula = random_ksat(500, seed=2)
    whole = Search(formula, 1).run(10)
    polished = local.local_search(formula, whole.assignment, 1, flips=3000)
    before = torch.get_num_threads()
    monkeypatch.setattr(pieces, "PIECE_READS", 100)
    try:
        for threads in (1, 3):
            torch.set_num_threads(threads)
            again = Formula(500, formula.starts, formula.literals, formula.weights)
            found = Search(again, 1).run(10)
            assert np.array_equal(found.assignment, whole.assignment)
            rest = local.local_search(again, found.assignment, 1, flips=3000)
            assert np.array_equal(rest.assignment, polished.assignment)
            assert np.array_equal(again.occurrences, formula.occurrences)
    finally:
        torch.set_num_threads(before)


def test_a_long_clause_costs_no_more_than_its_literals_in_many():
    """Quadratic work would take minutes, in loops that cannot be interrupted."""
    num = 200_000
    formula = Formula.from_lists([list(range(1, num + 1)), [-1, -2]], num)
    began = time.perf_counter()
    found = Search(formula).run(2)
    assert formula.cost(found.assignment) == (found.standing.weight, 0)
    assert time.perf_counter() - began < 20
