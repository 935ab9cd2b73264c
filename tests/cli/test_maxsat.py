import json
import re
import signal
import time

import numpy as np
import pytest

from hardstep.cli import maxsat
from hardstep.maxsat import Formula, random_ksat, read, write
from tests.cli.program import hardstep, start

HARD_CONFLICT = "p wcnf 1 2 10\n10 1 0\n10 -1 0\n"


@pytest.fixture
def instance(tmp_path):
    path = tmp_path / "small.cnf"
    write(random_ksat(60, ratio=5.5, seed=1), path)
    return path


def lines_of(done, letter):
    return [line[2:] for line in done.stdout.splitlines() if line.startswith(f"{letter} ")]


def test_lines_are_those_of_the_evaluation_and_the_assignment_costs_what_it_says(instance):
    done = hardstep("maxsat", instance, "--steps", 40)
    assert done.returncode == 0, done.stderr
    costs = [int(line) for line in lines_of(done, "o")]
    assert costs == sorted(set(costs), reverse=True)
    assert lines_of(done, "s") == ["UNKNOWN"]
    (digits,) = lines_of(done, "v")
    assignment = np.array([digit == "1" for digit in digits])
    assert read(instance).cost(assignment) == (costs[-1], 0)
    assert {line[0] for line in done.stdout.splitlines()} == set("cosv")


def test_the_time_left_is_that_of_the_limit(instance):
    done = hardstep("maxsat", instance, "--seconds", 1.5, "--target", 0, "--polish")
    assert re.match(r"step 0/\S+  \d+ ms left  falsified ", done.stderr)  # half of it, and less
    assert "polishing by local search (probSAT), at most 750 ms" in lines_of(done, "c")


def test_a_satisfied_formula_is_said_to_be_satisfiable(tmp_path):
    path = tmp_path / "easy.cnf"
    write(Formula.from_lists([[1, 2], [-1], [3, -2]], 3), path)
    done = hardstep("maxsat", path, "--steps", 50)
    assert lines_of(done, "s") == ["SATISFIABLE"]
    assert lines_of(done, "o")[-1] == "0"
    assert lines_of(done, "v") == ["011"]


def test_json_alone_on_stdout(instance):
    done = hardstep("maxsat", instance, "--steps", 30, "--seed", 3, "--polish", "--json")
    result = json.loads(done.stdout)
    assert (result["variables"], result["clauses"], result["steps"]) == (60, 330, 30)
    assert result["polish_flips"] == 6000
    assignment = np.array([digit == "1" for digit in result["assignment"]])
    assert read(instance).cost(assignment) == (result["falsified_weight"], 0)


def test_the_papers_search_is_a_preset():
    done = hardstep("maxsat", "--random", 300, "--steps", 300, "--preset", "paper", "--json")
    result = json.loads(done.stdout)
    assert result["preset"] == "paper"
    assert result["evaluations"] == 100 * 450 + 200  # a plan is used for three steps
    assert result["satisfied_share"] > 0.95
    assert "did you mean 'paper'" in hardstep("maxsat", "--random", 9, "--preset", "papr").stderr


def test_random_formulas_and_runs_follow_from_the_seed():
    runs = [
        hardstep("maxsat", "--random", 200, "--steps", 20, "--seed", seed) for seed in (5, 5, 6)
    ]
    first, again, other = (lines_of(done, "v") for done in runs)
    assert first == again != other


def test_hard_clauses_that_cannot_hold_are_said_plainly(tmp_path):
    path = tmp_path / "conflict.wcnf"
    path.write_text(HARD_CONFLICT)
    done = hardstep("maxsat", path, "--steps", 20)
    assert done.returncode == 0
    assert "FALSIFIES 1 of 2 hard clauses" in done.stdout
    assert lines_of(done, "s") == ["UNKNOWN"]
    assert lines_of(done, "v") == lines_of(done, "o") == []


def test_a_broken_file_is_refused_by_line(tmp_path):
    path = tmp_path / "broken.cnf"
    path.write_text("p cnf 2 2\n1 2 0\n1 9 0\n")
    done = hardstep("maxsat", path)
    assert done.returncode == 2
    assert "broken.cnf" in done.stderr
    assert "line 3" in done.stderr


@pytest.mark.slow
def test_ctrl_c_prints_the_best_found():
    process = start("maxsat", "--random", 3000, "--seconds", 600)
    try:
        seen = []
        while not seen or not seen[-1].startswith("o "):
            seen.append(process.stdout.readline())
        time.sleep(0.2)
        process.send_signal(signal.SIGINT)
        rest, _ = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 130
    text = "".join(seen) + rest
    (digits,) = [line[2:] for line in text.splitlines() if line.startswith("v ")]
    cost = [int(line[2:]) for line in text.splitlines() if line.startswith("o ")][-1]
    assignment = np.array([digit == "1" for digit in digits])
    assert random_ksat(3000, seed=0).cost(assignment) == (cost, 0)


def test_variables_that_do_not_occur_are_printed_as_false(tmp_path):
    path = tmp_path / "wide.cnf"
    path.write_text("p cnf 3000000 2\n1500000 0\n-2 3000000 0\n")
    done = hardstep("maxsat", path, "--steps", 20)
    (digits,) = lines_of(done, "v")
    assert len(digits) == 3_000_000
    assert digits[1_499_999] == "1"
    assert digits.count("1") <= 3
    shown = json.loads(hardstep("maxsat", path, "--steps", 20, "--json").stdout)
    assert shown["assignment"] == digits


@pytest.mark.parametrize("polish", [False, True])
def test_a_signal_anywhere_in_the_search_keeps_the_best_so_far(instance, monkeypatch, polish):
    """Here where no search is looking: after the last improvement, before the result is made."""

    def kill(*arguments, **named):
        signal.raise_signal(signal.SIGTERM)

    after = "hardstep.cli.maxsat.local_search" if polish else "hardstep.maxsat.search.SearchResult"
    monkeypatch.setattr(after, kill)
    done = hardstep("maxsat", instance, "--steps", 10, *["--polish"] * polish)
    assert done.returncode == 130, done.stderr
    (digits,) = lines_of(done, "v")
    assignment = np.array([digit == "1" for digit in digits])
    assert read(instance).cost(assignment) == (int(lines_of(done, "o")[-1]), 0)


def test_a_signal_while_the_answer_is_written_does_not_cut_it(instance, monkeypatch):
    format_digits = maxsat._format_digits

    def kill(assignment):
        signal.raise_signal(signal.SIGTERM)
        yield from format_digits(assignment)

    monkeypatch.setattr(maxsat, "_format_digits", kill)
    done = hardstep("maxsat", instance, "--steps", 10)
    (digits,) = lines_of(done, "v")
    assert len(digits) == 60


def test_a_signal_while_steps_are_planned_prints_the_start(instance, monkeypatch):
    def kill(*arguments):
        signal.raise_signal(signal.SIGTERM)

    monkeypatch.setattr("hardstep.maxsat.search.Search.steps_within", kill)
    done = hardstep("maxsat", instance)
    assert done.returncode == 130, done.stderr
    assert [len(digits) for digits in lines_of(done, "v")] == [60]
