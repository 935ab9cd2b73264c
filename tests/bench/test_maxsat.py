"""The runs of benchmarks/maxsat that the paper's table is made of."""

import pytest
from benchmarks.maxsat import plan, printed, walksat

from hardstep.maxsat import random_ksat

FORMULA = random_ksat(200, seed=1)
PLACE = {"suite": "paper", "variables": 200}


def test_walksat_returns_what_its_assignment_costs_and_gets_far():
    found = walksat.walksat(FORMULA, printed.start_of(FORMULA, 0), 0, flips=20_000)
    assert FORMULA.cost(found.assignment) == (found.standing.weight, 0)
    assert found.standing.weight <= 5  # of 854 clauses; a random assignment falsifies 107
    assert 0 < found.flips <= 20_000


def test_walksat_without_noise_is_greedy_and_is_fixed_by_its_seed():
    start = printed.start_of(FORMULA, 1)
    greedy, noisy, again = (
        walksat.walksat(FORMULA, start, 3, flips=5000, noise=noise) for noise in (0.0, 0.567, 0.567)
    )
    assert (noisy.assignment == again.assignment).all()
    assert (noisy.standing, noisy.flips) == (again.standing, again.flips)
    assert greedy.standing != noisy.standing


@pytest.mark.parametrize("name", ["probSAT, restarts", "WalkSAT, restarts"])
def test_restarts_share_the_time_and_keep_the_best(name):
    result = printed.METHODS[name](FORMULA, {**PLACE, "seed": 42, "cpu_limit": 0.2})
    assert result["falsified"] <= 5
    assert result["flips"] <= result["restarts"] * result["flips_each"]
    assert 1 <= result["restarts"] <= printed.RESTARTS
    assert result["cpu_seconds"] < 1.0


def test_a_run_waits_for_the_method_whose_time_it_gets():
    spec = {**PLACE, "method": "probSAT, restarts", "times": 1.5, "of": "a"}
    assert plan.give_time({**PLACE, "method": "a"}, []) == {**PLACE, "method": "a"}
    others = [{**PLACE, "suite": "time", "method": "a", "cpu_seconds": 9.0}]
    assert plan.give_time(spec, others) is None
    records = [{**PLACE, "method": "a", "cpu_seconds": seconds} for seconds in (2.0, 4.0)]
    assert plan.give_time(spec, others + records)["cpu_limit"] == 4.5


def test_seeds_make_runs_of_their_own():
    table = {"suite": "paper", "method": "a", "variables": [100, 500], "seeds": [1, 2]}
    specs = plan.expand({"ratio": 4.27, "run": [table]})
    assert len({plan.key(spec) for spec in specs}) == len(specs) == 4
    assert [plan.without_seed(spec) for spec in specs[:2]] == [plan.without_seed(specs[0])] * 2
    assert plan.without_seed(specs[1]) != plan.without_seed(specs[2])


def test_theory_mode_and_the_printed_search_take_the_same_steps():
    spec = {**PLACE, "steps": 40, "seed": 42}
    tuned = printed.as_run(FORMULA, spec)
    theory = printed.METHODS["polystep, as printed, theory mode, ε 5"](FORMULA, spec)
    assert (tuned["steps"], theory["steps"]) == (40, 40)
    assert tuned["evaluations_spent"] == 14 * 300 + 26  # a plan is used for three steps
    assert theory["evaluations_spent"] == 40 * 400
    assert set(tuned["marks"]) == {20, 40}
