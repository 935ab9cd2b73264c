import math

import numpy as np
import pytest
import torch
from scipy.special import logsumexp

from hardstep.errors import ConfigError
from hardstep.solvers import Penalized, RowSoftmax, Sinkhorn

from .catalogue import random_costs, specification_costs

TIGHT = {"max_iterations": 20_000, "tolerance": 1e-14}


def reference_plan(costs, temperature, penalty):
    """The two updates as the theory writes them, iterated until nothing changes."""
    costs = costs.numpy()
    num_particles, num_vertices = costs.shape
    factor = penalty / (penalty + temperature)
    column = np.zeros(num_vertices)
    for _ in range(20_000):
        row = temperature * (
            -math.log(num_particles) - logsumexp((column - costs) / temperature, axis=1)
        )
        fitted = -math.log(num_vertices) - logsumexp((row[:, None] - costs) / temperature, axis=0)
        previous, column = column, factor * temperature * fitted
        if abs(column - previous).max() < 2e-15:
            break
    row = -math.log(num_particles) - logsumexp((column - costs) / temperature, axis=1)
    return torch.from_numpy(np.exp(row[:, None] + (column - costs) / temperature))


def column_divergence(plan):
    """KL(q ‖ b) of the column sums from uniform."""
    columns = plan.weights.sum(dim=0)
    return float((columns * (columns * len(columns)).log()).sum())


@pytest.mark.parametrize("penalty", [1e-3, 0.05, 1.0, 5.0])
def test_plan_equals_the_updates_written_out(penalty):
    costs = specification_costs()
    plan = Penalized(penalty, **TIGHT).solve(costs, 0.1)
    torch.testing.assert_close(
        plan.weights, reference_plan(costs, 0.1, penalty), rtol=1e-10, atol=1e-12
    )
    assert plan.converged


def test_no_penalty_is_exactly_the_softmax():
    costs = specification_costs()
    plan = Penalized(0.0).solve(costs, 0.1)
    assert torch.equal(plan.weights, RowSoftmax().solve(costs, 0.1).weights)
    assert (plan.iterations, plan.converged) == (0, True)


@pytest.mark.parametrize("penalty", [1e-14, 1e-40, 5e-324])
@pytest.mark.parametrize("temperature", [0.1, 1e6])
def test_a_vanishing_penalty_approaches_the_softmax(penalty, temperature):
    costs = specification_costs()
    plan = Penalized(penalty).solve(costs, temperature)
    softmax = RowSoftmax().solve(costs, temperature).weights
    torch.testing.assert_close(plan.weights, softmax, rtol=0, atol=1e-12)


@pytest.mark.parametrize("penalty", [1e14, 1e308, math.inf])
def test_a_huge_penalty_approaches_sinkhorn(penalty):
    costs = specification_costs()
    plan = Penalized(penalty, **TIGHT).solve(costs, 0.1)
    sinkhorn = Sinkhorn(**TIGHT).solve(costs, 0.1)
    torch.testing.assert_close(plan.weights, sinkhorn.weights, rtol=0, atol=1e-12)
    assert plan.converged


def test_the_distance_to_the_softmax_is_proportional_to_a_small_penalty():
    costs = specification_costs()
    softmax = RowSoftmax().solve(costs, 0.1).weights
    penalties = np.logspace(-6, -3, 7)
    gaps = [
        float((Penalized(penalty, **TIGHT).solve(costs, 0.1).weights - softmax).norm())
        for penalty in penalties
    ]
    slope = np.polyfit(np.log(penalties), np.log(gaps), 1)[0]
    assert slope == pytest.approx(1.0, abs=0.05)


def test_column_violation_never_rises_with_the_penalty():
    costs = specification_costs()
    penalties = np.logspace(-2, 2, 10)
    violations = [
        column_divergence(Penalized(penalty, **TIGHT).solve(costs, 0.1)) for penalty in penalties
    ]
    assert all(later <= sooner for sooner, later in zip(violations, violations[1:], strict=False))
    # Drop and slopes of this instance, from the specification of the theory checks (H5).
    assert violations[0] / violations[-1] == pytest.approx(1.88e5, rel=0.01)
    slopes = np.diff(np.log(violations)) / np.diff(np.log(penalties))
    assert slopes[-1] == pytest.approx(-2.0, abs=0.02)


@pytest.mark.parametrize("penalty", [0.01, 0.1, 1.0, 100.0])
def test_potential_is_the_penalty_times_the_log_of_the_column_gap(penalty):
    plan = Penalized(penalty, **TIGHT).solve(specification_costs(), 0.1)
    gap = -math.log(5) - plan.weights.sum(dim=0).log()
    # An error in the column sums is multiplied by the penalty.
    torch.testing.assert_close(
        plan.potentials.column, penalty * gap, rtol=0, atol=1e-12 * max(1.0, penalty)
    )


@pytest.mark.parametrize("penalty", [0.01, 0.1, 1.0, 100.0])
def test_scaling_is_the_damped_power_of_the_plain_sinkhorn_scaling(penalty):
    costs = specification_costs()
    row, column = Penalized(penalty, **TIGHT).solve(costs, 0.1).potentials
    received = torch.exp((row[:, None] - costs) / 0.1).sum(dim=0)
    damping = penalty / (penalty + 0.1)
    torch.testing.assert_close(
        column / 0.1, damping * (1 / (5 * received)).log(), rtol=0, atol=1e-12
    )


@pytest.mark.parametrize("penalty", [0.0, 0.3, math.inf])
def test_potentials_rebuild_the_plan_for_the_given_costs(penalty):
    costs = specification_costs() + 5.0
    plan = Penalized(penalty, **TIGHT).solve(costs, 0.1)
    row, column = plan.potentials
    rebuilt = torch.exp((row[:, None] + column - costs) / 0.1)
    torch.testing.assert_close(rebuilt, plan.weights, rtol=1e-11, atol=0)


@pytest.mark.parametrize("penalty", [1e3, 1e6])
def test_large_penalties_need_no_more_iterations_than_sinkhorn(penalty):
    costs = specification_costs()
    sinkhorn = Sinkhorn(max_iterations=1000, tolerance=1e-12).solve(costs, 0.1)
    plan = Penalized(penalty, max_iterations=1000, tolerance=1e-12).solve(costs, 0.1)
    assert plan.converged
    assert plan.iterations <= sinkhorn.iterations + 2


def test_a_flat_row_inherits_the_preferences_of_the_others():
    costs = random_costs(4, 3)
    costs[0] = 0.37
    shifted = costs.clone()
    shifted[0] = 12.5
    plan = Penalized(0.3, **TIGHT).solve(costs, 0.1)
    ghost = torch.softmax(plan.potentials.column / 0.1, dim=0) / 4
    torch.testing.assert_close(plan.weights[0], ghost, rtol=0, atol=1e-15)
    again = Penalized(0.3, **TIGHT).solve(shifted, 0.1)
    torch.testing.assert_close(again.weights, plan.weights, rtol=0, atol=1e-15)
    assert plan.weights[0].std() > 1e-3


def test_flat_rows_alone_stay_uniform_at_every_penalty():
    costs = torch.tensor([[0.2], [1.7], [-3.0]], dtype=torch.float64).expand(3, 4)
    for penalty in (0.0, 0.1, 10.0, math.inf):
        weights = Penalized(penalty).solve(costs, 0.1).weights
        torch.testing.assert_close(weights, torch.full_like(weights, 1 / 12), rtol=1e-15, atol=0)


def test_a_warm_start_saves_iterations():
    solver = Penalized(1.0, tolerance=1e-10)
    first = solver.solve(specification_costs(), 0.1)
    costs = specification_costs() + 1e-3 * random_costs(12, 5, seed=3)
    warm, cold = solver.solve(costs, 0.1, first.potentials), solver.solve(costs, 0.1)
    assert warm.iterations < cold.iterations
    torch.testing.assert_close(warm.weights, cold.weights, rtol=1e-8, atol=0)


@pytest.mark.parametrize("penalty", [-0.1, math.nan, -math.inf])
def test_penalties_below_zero_are_refused(penalty):
    with pytest.raises(ConfigError, match=f"column_penalty must be >= 0, got {penalty}"):
        Penalized(penalty)


@pytest.mark.parametrize(
    ("field", "value"),
    [("max_iterations", 0), ("tolerance", 0.0), ("tolerance", math.nan), ("tolerance", math.inf)],
)
def test_limits_out_of_range_are_refused(field, value):
    with pytest.raises(ConfigError, match=f"Penalized: {field} must .* got {value}"):
        Penalized(1.0, **{field: value})
