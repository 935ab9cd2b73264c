import math

import numpy as np
import ot
import pytest
import torch

from hardstep.errors import ConfigError
from hardstep.solvers import Potentials, Sinkhorn
from hardstep.solvers.sinkhorn import Anderson, DualAscent, Relaxed

from .catalogue import random_costs, specification_costs

TIGHT = {"max_iterations": 20_000, "tolerance": 1e-14}
HARD = {"max_iterations": 20_000, "tolerance": 1e-12}
MOVES = torch.linspace(-30, 30, 2001, dtype=torch.float64)


def violations(plan):
    """|log(q_v/b_v)| of the column sums."""
    columns = plan.weights.sum(dim=0)
    return (columns * len(columns)).log().abs()


@pytest.mark.parametrize(
    ("shape", "temperature"), [((12, 5), 0.1), ((30, 4), 0.05), ((8, 8), 0.2), ((50, 3), 0.02)]
)
def test_plan_equals_the_one_of_pot(shape, temperature):
    costs = random_costs(*shape)
    masses = [np.full(size, 1 / size) for size in shape]
    tight = {"method": "sinkhorn_log", "stopThr": 1e-14, "numItermax": 20_000}
    expected = ot.sinkhorn(*masses, costs.numpy(), temperature, **tight)
    plan = Sinkhorn(**TIGHT).solve(costs, temperature)
    torch.testing.assert_close(plan.weights, torch.from_numpy(expected), rtol=0, atol=1e-10)


def test_both_marginals_are_met():
    plan = Sinkhorn(**TIGHT).solve(specification_costs(), 0.1)
    rows = plan.weights.sum(dim=1)
    torch.testing.assert_close(rows, torch.full_like(rows, 1 / 12), rtol=1e-14, atol=0)
    assert violations(plan).max() <= 1e-13
    assert plan.converged


@pytest.mark.parametrize("options", [{}, {"relaxation": 1.6}, {"anderson": 4}], ids=str)
@pytest.mark.parametrize("tolerance", [1e-2, 1e-4, 1e-8])
def test_a_converged_plan_keeps_its_tolerance(options, tolerance):
    plan = Sinkhorn(tolerance=tolerance, **options).solve(random_costs(200, 6), 0.02)
    assert plan.converged
    assert violations(plan).max() <= tolerance


def test_running_out_of_iterations_is_reported_and_leaves_exact_rows():
    plan = Sinkhorn(max_iterations=3, tolerance=1e-12).solve(specification_costs(), 0.1)
    assert (plan.iterations, plan.converged) == (3, False)
    rows = plan.weights.sum(dim=1)
    torch.testing.assert_close(rows, torch.full_like(rows, 1 / 12), rtol=1e-14, atol=0)


def test_more_iterations_never_worsen_the_spread_of_the_column_violation():
    costs = specification_costs()
    spreads = []
    for limit in range(1, 20):
        plan = Sinkhorn(max_iterations=limit, tolerance=1e-15).solve(costs, 0.1)
        logs = plan.weights.sum(dim=0).log()
        spreads.append(float(logs.max() - logs.min()))
    assert all(later < sooner for sooner, later in zip(spreads, spreads[1:], strict=False))


def test_constant_costs_need_no_iteration():
    plan = Sinkhorn().solve(torch.full((5, 4), 0.3), 0.01)
    assert (plan.iterations, plan.converged) == (0, True)
    torch.testing.assert_close(plan.weights, torch.full((5, 4), 0.05))


def test_potentials_rebuild_the_plan_for_the_given_costs():
    costs = specification_costs() + 5.0
    plan = Sinkhorn(**TIGHT).solve(costs, 0.1)
    row, column = plan.potentials
    rebuilt = torch.exp((row[:, None] + column - costs) / 0.1)
    torch.testing.assert_close(rebuilt, plan.weights, rtol=1e-11, atol=0)


@pytest.mark.parametrize("options", [{}, {"relaxation": 1.5}, {"anderson": 4}], ids=str)
def test_a_warm_start_saves_iterations(options):
    solver = Sinkhorn(tolerance=1e-8, max_iterations=5000, **options)
    costs = random_costs(100, 6)
    changed = costs + 1e-4 * random_costs(100, 6, seed=1)
    previous = solver.solve(costs, 0.02).potentials
    warm, cold = solver.solve(changed, 0.02, previous), solver.solve(changed, 0.02)
    assert warm.converged
    assert cold.converged
    assert warm.iterations < 0.8 * cold.iterations
    torch.testing.assert_close(warm.weights, cold.weights, rtol=0, atol=1e-8)


def test_a_warm_start_on_the_same_costs_is_already_there():
    solver = Sinkhorn(tolerance=1e-8)
    first = solver.solve(specification_costs(), 0.1)
    assert solver.solve(specification_costs(), 0.1, first.potentials).iterations == 0


def test_a_warm_start_does_not_depend_on_the_rows_it_came_from():
    solver = Sinkhorn()
    previous = solver.solve(specification_costs()[:7], 0.1).potentials
    assert solver.solve(specification_costs(), 0.1, previous).converged


@pytest.mark.parametrize(
    ("relaxation", "seed"), [(0.5, 0), (1.2, 1), (1.5, 2), (1.8, 0), (1.95, 1)]
)
def test_relaxation_gives_the_plain_plan(relaxation, seed):
    costs = random_costs(60, 5, seed)
    plain = Sinkhorn(**HARD).solve(costs, 0.02)
    relaxed = Sinkhorn(relaxation=relaxation, **HARD).solve(costs, 0.02)
    assert relaxed.converged
    torch.testing.assert_close(relaxed.weights, plain.weights, rtol=0, atol=1e-10)


def test_strong_relaxation_converges_where_unguarded_updates_do_not():
    # Without the limit on moves this instance still oscillates after 20,000 iterations.
    solver = Sinkhorn(relaxation=1.95, max_iterations=2000, tolerance=1e-10)
    assert solver.solve(random_costs(10, 8, seed=1), 0.005).converged


def test_relaxation_saves_iterations_on_a_hard_instance():
    costs = random_costs(200, 6)
    plain = Sinkhorn(**HARD).solve(costs, 0.01)
    relaxed = Sinkhorn(relaxation=1.5, **HARD).solve(costs, 0.01)
    assert relaxed.iterations < plain.iterations / 2


@pytest.mark.parametrize(("depth", "seed"), [(1, 0), (3, 1), (8, 2)])
def test_anderson_gives_the_plain_plan_in_fewer_iterations_on_a_hard_instance(depth, seed):
    costs = random_costs(200, 6, seed)
    plain = Sinkhorn(**HARD).solve(costs, 0.01)
    mixed = Sinkhorn(anderson=depth, **HARD).solve(costs, 0.01)
    assert mixed.converged
    assert mixed.iterations < plain.iterations / 2
    torch.testing.assert_close(mixed.weights, plain.weights, rtol=0, atol=1e-10)


@pytest.mark.parametrize("options", [{}, {"relaxation": 1.5}, {"anderson": 3}], ids=str)
def test_float32_reaches_the_default_tolerance_on_many_particles(options):
    costs = torch.rand(50_000, 3, generator=torch.Generator().manual_seed(0))
    plan = Sinkhorn(**options).solve(costs, 0.05)
    assert plan.converged
    assert violations(plan).max() <= 1e-5


def test_the_number_of_vertices_may_not_change_under_a_warm_start():
    previous = Sinkhorn().solve(specification_costs(), 0.1).potentials
    with pytest.raises(ConfigError, match=r"shape \(3,\), got .* of shape \(5,\); pass warm=None"):
        Sinkhorn().solve(random_costs(12, 3), 0.1, previous)


def test_warm_potentials_that_are_not_finite_are_refused():
    warm = Potentials(torch.zeros(2), torch.tensor([0.0, math.nan, 0.0]))
    with pytest.raises(ConfigError, match="must be finite, .* got .*nan"):
        Sinkhorn().solve(random_costs(2, 3), 0.1, warm)


def test_warm_potentials_beyond_the_range_of_the_costs_give_finite_weights():
    warm = Potentials(torch.zeros(2), torch.tensor([0.0, 3e30, -3e30]))
    plan = Sinkhorn(max_iterations=5).solve(random_costs(2, 3).float(), 1e-20, warm)
    assert plan.weights.isfinite().all()


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"relaxation": 0.49}, r"relaxation must lie in \[0.5, 1.95\], got 0.49"),
        ({"relaxation": 1.96}, r"relaxation must lie in \[0.5, 1.95\], got 1.96"),
        ({"relaxation": math.nan}, r"relaxation must lie in \[0.5, 1.95\], got nan"),
        ({"max_iterations": 0}, "Sinkhorn: max_iterations .*must be .* got 0"),
        ({"tolerance": -1e-6}, "Sinkhorn: tolerance .*must be .* got -1e-06"),
        ({"anderson": -1}, "Sinkhorn: anderson .*must be .* got -1"),
        ({"relaxation": 1.5, "anderson": 3}, "anderson = 3 needs relaxation = 1.0, got 1.5"),
    ],
)
def test_settings_out_of_range_and_two_accelerations_at_once_are_refused(settings, sentence):
    with pytest.raises(ConfigError, match=sentence):
        Sinkhorn(**settings)


@pytest.mark.parametrize("relaxation", [0.5, 0.9, 1.0, 1.3, 1.5, 1.8, 1.95])
def test_a_relaxed_move_of_any_size_never_lowers_the_dual(relaxation):
    current = torch.zeros_like(MOVES)
    taken = Relaxed(relaxation).move_row(current, MOVES)
    # Per unit of mass: linear term minus the change of the sum over the row.
    gain = taken + torch.exp(-MOVES) - torch.exp(taken - MOVES)
    assert (gain >= -1e-12).all()


@pytest.mark.parametrize("relaxation", [0.5, 1.5, 1.95])
def test_small_moves_are_relaxed_in_full(relaxation):
    current = torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64)
    target = torch.tensor([1.04, 1.5, -9.0], dtype=torch.float64)
    expected = (1 - relaxation) * current + relaxation * target
    torch.testing.assert_close(Relaxed(relaxation).move_column(current, target, 1.0), expected)


def test_relaxation_one_is_the_exact_update():
    current, target = torch.tensor([0.1, 1e30]), torch.tensor([0.7, -3.0])
    assert torch.equal(Relaxed().move_row(current, target), target)


def test_mixing_solves_a_linear_fixed_point_in_as_many_steps_as_dimensions():
    generator = torch.Generator().manual_seed(0)
    matrix = torch.rand(3, 3, generator=generator, dtype=torch.float64) / 3
    offset = torch.ones(3, dtype=torch.float64)
    solution = torch.linalg.solve(torch.eye(3, dtype=torch.float64) - matrix, offset)
    step, point = Anderson(depth=3), torch.zeros(3, dtype=torch.float64)
    for _ in range(5):
        target = matrix @ point + offset
        point = step.move_column(point, target, float((target - point).abs().max()))
    torch.testing.assert_close(point, solution, rtol=1e-10, atol=0)


@pytest.mark.parametrize("violation", [1.0, 7.0, float("nan")])
def test_a_mixed_point_that_does_not_help_is_dropped_for_the_plain_update(violation):
    step = Anderson(depth=2)
    step.move_column(torch.tensor([0.0, 0.0]), torch.tensor([1.0, 0.5]), 2.0)
    plain = torch.tensor([1.5, 0.9])
    mixed = step.move_column(torch.tensor([1.0, 0.5]), plain, 1.0)
    assert not torch.equal(mixed, plain)
    assert torch.equal(step.move_column(mixed, torch.tensor([9.0, 9.0]), violation), plain)


def test_mixing_survives_residuals_that_do_not_change():
    step = Anderson(depth=2)
    step.move_column(torch.tensor([0.0, 0.0]), torch.tensor([1.0, 0.0]), 2.0)
    mixed = step.move_column(torch.tensor([1.0, 0.0]), torch.tensor([2.0, 0.0]), 1.0)
    assert mixed.tolist() == [2.0, 0.0]


def ascent_to(tolerance):
    return DualAscent("Test", math.inf, 10, tolerance)


def test_a_tolerance_below_rounding_is_raised_to_it():
    ascent, column = ascent_to(1e-12), torch.zeros(3)
    assert ascent.is_reached(1e-6, column)
    assert not ascent.is_reached(1e-5, column)
    assert not ascent.is_reached(1e-6, column.double())


@pytest.mark.parametrize("size", [1e4, 1e30])
def test_large_potentials_are_never_called_converged_beyond_a_thousandth(size):
    ascent, column = ascent_to(1e-12), torch.tensor([-size, size])
    assert ascent.is_reached(1e-3, column)
    assert not ascent.is_reached(2e-3, column)


def test_a_violation_that_is_not_a_number_is_not_convergence():
    assert not ascent_to(1e-3).is_reached(float("nan"), torch.zeros(2))
