"""Properties every solver shares, on shapes and costs drawn by hypothesis."""

import dataclasses

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from hardstep.solvers import RowSoftmax, Sinkhorn

from .catalogue import blockwise_catalogue, catalogue, random_costs

EXAMPLES = settings(max_examples=8, deadline=None, derandomize=True)
TEMPERATURES = st.sampled_from([1.0, 2.5, 10.0])
SOLVERS = pytest.mark.parametrize("solver", catalogue(), ids=repr)
EXTREMES = {
    "huge": lambda base: 1e30 * base,
    "tiny": lambda base: 1e-30 * base,
    "constant": lambda base: torch.full_like(base, -7.3),
    "offset": lambda base: 1e8 + 1e-3 * base,
    "largest": lambda base: torch.finfo(base.dtype).max * base.sign(),
    "one huge": lambda base: base.index_fill(1, torch.tensor([1]), 1e30),
    "one huge row": lambda base: base.index_fill(0, torch.tensor([2]), -1e30),
}


@st.composite
def cost_matrices(draw):
    """Sixteenths in [-2, 2]: ties occur, and dyadic shifts lose no digit."""
    shape = draw(st.tuples(st.integers(1, 7), st.integers(2, 5)))
    size = shape[0] * shape[1]
    values = draw(st.lists(st.integers(-32, 32), min_size=size, max_size=size))
    return torch.tensor(values, dtype=torch.float64).reshape(shape) / 16


def assert_same(actual, expected):
    torch.testing.assert_close(actual, expected, rtol=0, atol=1e-9)


@EXAMPLES
@given(costs=cost_matrices(), temperature=TEMPERATURES)
def test_rows_carry_equal_mass_and_no_weight_is_negative(costs, temperature):
    for solver in blockwise_catalogue(len(costs)):
        weights = solver.solve(costs, temperature).weights
        assert weights.shape == costs.shape
        assert weights.dtype == costs.dtype
        assert (weights >= 0).all()
        rows = weights.sum(dim=1)
        torch.testing.assert_close(rows, torch.full_like(rows, 1 / len(rows)), rtol=1e-14, atol=0)


@SOLVERS
@EXAMPLES
@given(data=st.data(), costs=cost_matrices(), temperature=TEMPERATURES)
def test_permuted_costs_give_the_permuted_plan(solver, data, costs, temperature):
    rows = torch.tensor(data.draw(st.permutations(range(costs.shape[0]))))
    columns = torch.tensor(data.draw(st.permutations(range(costs.shape[1]))))
    expected = solver.solve(costs, temperature).weights[rows][:, columns]
    assert_same(solver.solve(costs[rows][:, columns], temperature).weights, expected)


@SOLVERS
@EXAMPLES
@given(costs=cost_matrices(), temperature=TEMPERATURES, shift=st.sampled_from([-3.25, 2.0**27]))
def test_plan_is_unchanged_by_a_shift_of_all_costs_or_of_one_row(solver, costs, temperature, shift):
    plan = solver.solve(costs, temperature)
    assert torch.equal(solver.solve(costs + shift, temperature).weights, plan.weights)
    costs[-1] += shift
    assert torch.equal(solver.solve(costs, temperature).weights, plan.weights)


@SOLVERS
@EXAMPLES
@given(costs=cost_matrices(), temperature=TEMPERATURES)
def test_scaling_costs_and_temperature_together_changes_nothing(solver, costs, temperature):
    if hasattr(solver, "column_penalty"):
        scaled = dataclasses.replace(solver, column_penalty=64 * solver.column_penalty)
    else:
        scaled = solver
    expected = solver.solve(costs, temperature).weights
    assert torch.equal(scaled.solve(64 * costs, 64 * temperature).weights, expected)


@SOLVERS
@EXAMPLES
@given(costs=cost_matrices(), temperature=TEMPERATURES)
def test_identical_rows_get_identical_weights(solver, costs, temperature):
    weights = solver.solve(costs[:1].expand(3, -1), temperature).weights
    assert_same(weights, weights[:1].expand(3, -1))


@SOLVERS
@EXAMPLES
@given(costs=cost_matrices(), temperature=TEMPERATURES)
def test_float32_is_close_to_float64(solver, costs, temperature):
    single = solver.solve(costs.float(), temperature).weights
    double = solver.solve(costs, temperature).weights
    assert single.dtype == torch.float32
    torch.testing.assert_close(single.double(), double, rtol=0, atol=1e-5)


@pytest.mark.parametrize("number", range(3))
@pytest.mark.parametrize("extreme", EXTREMES)
def test_extreme_costs_give_finite_weights_and_potentials(extreme, number):
    temperature = (1e-6, 1.0, 1e6)[number]
    single = (number + list(EXTREMES).index(extreme)) % 2  # every pair, not every triple
    dtype = torch.float32 if single else torch.float64
    costs = EXTREMES[extreme](random_costs(6, 4).to(dtype))
    for solver in blockwise_catalogue(6, max_iterations=20, tolerance=1e-6):
        plan = solver.solve(costs, temperature)
        assert plan.weights.isfinite().all(), solver
        assert (plan.weights >= 0).all(), solver
        torch.testing.assert_close(plan.weights.sum(dim=1), torch.full((6,), 1 / 6, dtype=dtype))
        for potential in plan.potentials or ():
            assert potential.isfinite().all(), solver
        again = solver.solve(costs, temperature, plan.potentials)
        assert again.weights.isfinite().all(), solver


def test_solvers_print_as_they_are_written():
    assert repr(RowSoftmax()) == "RowSoftmax()"
    assert (
        repr(Sinkhorn(anderson=3))
        == "Sinkhorn(relaxation=1.0, max_iterations=500, tolerance=1e-06, anderson=3)"
    )


def test_solvers_are_equal_and_hashed_by_their_settings():
    assert catalogue() == catalogue()
    assert len({*catalogue(), *catalogue()}) == len(catalogue())


@pytest.mark.parametrize(
    "solver", [solver for solver in catalogue() if dataclasses.fields(solver)], ids=repr
)
def test_settings_cannot_be_changed_afterwards(solver):
    for field in dataclasses.fields(solver):
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(solver, field.name, 1)
