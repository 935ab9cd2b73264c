import math

import pytest
import torch

from hardstep.errors import ConfigError
from hardstep.solvers import Greedy, Penalized, RowSoftmax, Sinkhorn, TopK
from hardstep.solvers.base import Plan, scale

from .catalogue import specification_costs

SOLVERS = [RowSoftmax(), Greedy(), TopK(1), Penalized(0.5), Sinkhorn()]


def test_excess_is_the_cost_above_the_row_minimum_in_units_of_the_temperature():
    costs = torch.tensor([[3.0, 1.0, 2.0], [-4.0, -4.0, 0.0]])
    scaled = scale("Test", costs, 0.5)
    assert scaled.excess.tolist() == [[4.0, 0.0, 2.0], [0.0, 0.0, 8.0]]
    assert scaled.minimum.tolist() == [[1.0], [-4.0]]


def test_differences_below_a_large_offset_keep_every_digit():
    small = torch.tensor([[0.0, 2.0**-20, 3 * 2.0**-21]], dtype=torch.float64)
    assert torch.equal(scale("Test", small + 2.0**27, 1e-6).excess, small / 1e-6)


def test_excess_stays_finite_when_differences_overflow():
    costs = torch.tensor([[-3e38, 3e38]])
    excess = scale("Test", costs, 1e-6).excess
    assert excess.isfinite().all()
    assert excess[0, 1] > 1e36


def test_costs_are_left_as_they_were():
    costs = torch.tensor([[3.0, 1.0], [0.0, 2.0]])
    before = costs.clone()
    for solver in SOLVERS:
        solver.solve(costs, 1.0)
        assert torch.equal(costs, before)


@pytest.mark.parametrize("solver", SOLVERS, ids=repr)
@pytest.mark.parametrize("shape", [(3,), (2, 3, 4), (0, 3), (3, 0)], ids=str)
def test_costs_of_another_shape_are_refused(solver, shape):
    with pytest.raises(ConfigError) as error:
        solver.solve(torch.zeros(shape), 1.0)
    assert type(solver).__name__ in str(error.value)
    assert str(shape) in str(error.value)


@pytest.mark.parametrize("solver", SOLVERS, ids=repr)
@pytest.mark.parametrize("temperature", [0.0, -1.5, math.nan, math.inf])
def test_temperatures_that_are_not_positive_and_finite_are_refused(solver, temperature):
    with pytest.raises(ConfigError, match=f"temperature must .* got {temperature}"):
        solver.solve(torch.zeros(2, 3), temperature)


@pytest.mark.parametrize("solver", SOLVERS, ids=repr)
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_costs_that_are_not_finite_are_refused_with_their_place(solver, value):
    costs = torch.zeros(4, 3)
    costs[2, 1] = costs[3, 0] = value
    with pytest.raises(ConfigError, match=rf"got 2 .* first {value} at .* = \(2, 1\)"):
        solver.solve(costs, 1.0)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.int64])
def test_costs_of_another_dtype_are_refused(dtype):
    with pytest.raises(ConfigError, match=f"got {dtype}"):
        RowSoftmax().solve(torch.zeros(2, 3, dtype=dtype), 1.0)


def test_the_column_violation_is_the_divergence_of_the_column_sums():
    weights = torch.tensor([[0.4, 0.1], [0.3, 0.2]], dtype=torch.float64)
    expected = 0.7 * math.log(1.4) + 0.3 * math.log(0.6)
    assert Plan(weights).column_violation == pytest.approx(expected, rel=1e-12)
    assert Plan(torch.tensor([[0.5, 0.0], [0.5, 0.0]])).column_violation == pytest.approx(
        math.log(2)
    )


def test_a_tiny_column_violation_keeps_its_digits():
    off = 1e-9  # KL is off²/2 = 5e-19, below the rounding of its own terms
    weights = torch.tensor([[0.25 * (1 + off), 0.25 * (1 - off)]] * 2, dtype=torch.float64)
    assert Plan(weights).column_violation == pytest.approx(off**2 / 2, rel=1e-6)


def test_sinkhorn_leaves_no_column_violation_and_a_penalty_less_than_softmax():
    costs = specification_costs()
    softmax, penalized, sinkhorn = (
        solver.solve(costs, 0.1).column_violation
        for solver in (RowSoftmax(), Penalized(0.05), Sinkhorn())
    )
    assert softmax > penalized > 1e-3
    assert 0 <= sinkhorn < 1e-12
