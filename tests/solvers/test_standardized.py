import math

import pytest
import torch

from hardstep.errors import ConfigError
from hardstep.solvers import Blockwise, Greedy, Penalized, RowSoftmax, Sinkhorn, Standardized

from .catalogue import random_costs

INNER = [RowSoftmax(), Greedy(), Penalized(0.3), Sinkhorn()]


@pytest.mark.parametrize("inner", INNER, ids=repr)
@pytest.mark.parametrize("factor", [2.0**60, 2.0**-60, 3.7, 1e-12])
def test_plan_is_unchanged_by_a_positive_multiple_of_the_costs(inner, factor):
    costs = random_costs(7, 4)
    plan = Standardized(inner).solve(costs, 0.4).weights
    scaled = Standardized(inner).solve(factor * costs, 0.4).weights
    exact = math.frexp(factor)[0] == 0.5  # powers of two keep every bit
    tolerance = 0.0 if exact else 1e-6 if isinstance(inner, Sinkhorn) else 1e-12
    torch.testing.assert_close(scaled, plan, rtol=0, atol=tolerance)


@pytest.mark.parametrize("inner", INNER, ids=repr)
def test_plan_is_unchanged_by_a_shift_of_all_costs_or_of_one_row(inner):
    costs = torch.randint(-32, 32, (6, 4), generator=torch.Generator().manual_seed(0)).double() / 16
    plan = Standardized(inner).solve(costs, 0.4).weights
    assert torch.equal(Standardized(inner).solve(costs + 2.0**20, 0.4).weights, plan)
    costs[3] -= 2.0**20
    assert torch.equal(Standardized(inner).solve(costs, 0.4).weights, plan)


@pytest.mark.parametrize("inner", INNER, ids=repr)
@pytest.mark.parametrize("value", [0.0, -7.3, 1e30])
def test_constant_costs_give_uniform_rows(inner, value):
    costs = torch.full((5, 4), value, dtype=torch.float64)
    weights = Standardized(inner).solve(costs, 0.4).weights
    torch.testing.assert_close(weights, torch.full_like(costs, 1 / 20), rtol=1e-14, atol=0)


@pytest.mark.parametrize("inner", INNER, ids=repr)
def test_permuted_costs_give_the_permuted_plan(inner):
    costs, rows, columns = random_costs(5, 4), [3, 0, 4, 1, 2], [2, 0, 3, 1]
    expected = Standardized(inner).solve(costs, 0.4).weights[rows][:, columns]
    permuted = Standardized(inner).solve(costs[rows][:, columns], 0.4).weights
    torch.testing.assert_close(permuted, expected, rtol=0, atol=1e-12)


def test_a_constant_row_is_uniform_among_others():
    costs = random_costs(4, 3)
    costs[2] = 0.37
    weights = Standardized(RowSoftmax()).solve(costs, 0.1).weights
    torch.testing.assert_close(weights[2], torch.full_like(costs[2], 1 / 12), rtol=1e-14, atol=0)


def test_costs_are_divided_by_the_mean_over_rows_of_the_largest_deviation():
    costs = torch.tensor([[1.0, 2.0, 6.0], [10.0, 10.0, 13.0]]).double()
    # Row means 3 and 11: largest deviations 3 and 2, whose mean is 2.5.
    expected = torch.softmax(-costs / 2.5 / 0.8, dim=1) / 2
    torch.testing.assert_close(Standardized(RowSoftmax()).solve(costs, 0.8).weights, expected)


def test_the_row_with_the_wider_costs_is_the_more_decided():
    costs = torch.tensor([[0.0, 1.0, 2.0], [0.0, 10.0, 20.0]]).double()
    weights = Standardized(RowSoftmax()).solve(costs, 1.0).weights
    assert weights[1, 0] > 1.5 * weights[0, 0]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("temperature", [1e-6, 1.0, 1e6])
def test_extreme_costs_give_finite_weights(dtype, temperature):
    top, tiny = torch.finfo(dtype).max, torch.finfo(dtype).tiny
    base = random_costs(6, 4).to(dtype)
    for costs in (top / 2 * base, tiny * base, -top * base.abs().clamp(max=1), 1e8 + 1e-3 * base):
        weights = Standardized(RowSoftmax()).solve(costs, temperature).weights
        assert weights.isfinite().all()
        torch.testing.assert_close(weights.sum(dim=1), torch.full((6,), 1 / 6, dtype=dtype))


def test_costs_whose_range_overflows_give_finite_weights():
    top = torch.finfo(torch.float64).max
    costs = torch.tensor([[top, -top, 0.0], [0.0, 1.0, 2.0]], dtype=torch.float64)
    weights = Standardized(RowSoftmax()).solve(costs, 0.1).weights
    assert weights.isfinite().all()
    assert weights[0].argmax() == 1


def test_blocks_are_told_to_the_solver_inside():
    costs = random_costs(6, 4)
    blockwise = Standardized(Blockwise(Sinkhorn(tolerance=1e-12))).bind([2, 4])
    assert blockwise.inner.block_sizes == (2, 4)
    weights = blockwise.solve(costs, 0.5).weights
    for rows in (weights[:2], weights[2:]):
        columns = rows.sum(dim=0) * 6 / len(rows)
        torch.testing.assert_close(columns, torch.full((4,), 1 / 4).double(), rtol=0, atol=1e-10)


def test_warm_potentials_are_handed_on_and_save_iterations():
    solver = Standardized(Sinkhorn(tolerance=1e-10))
    costs = random_costs(12, 5)
    cold = solver.solve(costs, 0.1)
    warm = solver.solve(costs, 0.1, cold.potentials)
    assert warm.iterations < cold.iterations
    torch.testing.assert_close(warm.weights, cold.weights, rtol=0, atol=1e-9)


def test_costs_or_temperatures_out_of_range_are_refused():
    with pytest.raises(ConfigError, match="Standardized: temperature must be .* > 0, got 0"):
        Standardized(RowSoftmax()).solve(random_costs(2, 3), 0.0)
    with pytest.raises(ConfigError, match="Standardized: costs must be finite, got 1 that are not"):
        Standardized(RowSoftmax()).solve(torch.tensor([[1.0, math.nan]]), 1.0)
