import pytest
import torch

from hardstep.errors import ConfigError
from hardstep.solvers import Blockwise, Greedy, Penalized, Potentials, RowSoftmax, Sinkhorn, TopK

from .catalogue import random_costs

SIZES = (3, 1, 8)
TIGHT = Sinkhorn(tolerance=1e-12, max_iterations=5000)


@pytest.mark.parametrize("inner", [TIGHT, Penalized(0.3, tolerance=1e-12)], ids=repr)
def test_each_block_is_solved_as_if_alone(inner):
    costs = random_costs(12, 4)
    weights = Blockwise(inner).bind(SIZES).solve(costs, 0.1).weights
    for block, part in zip(costs.split(SIZES), weights.split(SIZES), strict=True):
        alone = inner.solve(block, 0.1).weights
        torch.testing.assert_close(part, alone * len(block) / 12, rtol=1e-14, atol=0)


def test_every_row_carries_the_same_mass_and_every_block_meets_the_columns():
    weights = Blockwise(TIGHT).bind(SIZES).solve(random_costs(12, 4), 0.1).weights
    torch.testing.assert_close(weights.sum(dim=1), torch.full((12,), 1 / 12).double())
    for part, size in zip(weights.split(SIZES), SIZES, strict=True):
        expected = torch.full((4,), size / 48, dtype=torch.float64)
        torch.testing.assert_close(part.sum(dim=0), expected)


def test_blocks_change_a_coupled_plan():
    costs = random_costs(12, 4)
    whole, parts = TIGHT.solve(costs, 0.1), Blockwise(TIGHT).bind(SIZES).solve(costs, 0.1)
    assert (whole.weights - parts.weights).abs().max() > 1e-3


@pytest.mark.parametrize("inner", [RowSoftmax(), Greedy(), TopK(2), Penalized(0.0)], ids=repr)
def test_blocks_change_nothing_where_rows_decide_alone(inner):
    costs = random_costs(12, 4)
    whole, parts = inner.solve(costs, 0.1), Blockwise(inner).bind(SIZES).solve(costs, 0.1)
    torch.testing.assert_close(parts.weights, whole.weights, rtol=1e-14, atol=0)


def test_one_block_is_the_inner_solver():
    costs = random_costs(12, 4)
    plan = Blockwise(TIGHT).bind([12]).solve(costs, 0.1)
    assert torch.equal(plan.weights, TIGHT.solve(costs, 0.1).weights)


def test_changing_one_block_leaves_the_others_alone():
    costs, solver = random_costs(12, 4), Blockwise(TIGHT).bind(SIZES)
    changed = costs.clone()
    changed[:3] = random_costs(3, 4, seed=9)
    before, after = solver.solve(costs, 0.1).weights, solver.solve(changed, 0.1).weights
    assert torch.equal(before[3:], after[3:])
    assert not torch.equal(before[:3], after[:3])


def test_potentials_rebuild_the_plan():
    costs = random_costs(12, 4)
    plan = Blockwise(TIGHT).bind(SIZES).solve(costs, 0.1)
    row, column = plan.potentials
    assert (row.shape, column.shape) == ((12,), (3, 4))
    per_row = column.repeat_interleave(torch.tensor(SIZES), dim=0)
    rebuilt = torch.exp((row[:, None] + per_row - costs) / 0.1)
    torch.testing.assert_close(rebuilt, plan.weights, rtol=1e-11, atol=0)


def test_warm_potentials_reach_their_blocks():
    costs, solver = random_costs(12, 4), Blockwise(TIGHT).bind(SIZES)
    first = solver.solve(costs, 0.1)
    assert first.iterations > 5
    assert solver.solve(costs, 0.1, first.potentials).iterations == 0


def test_solvers_without_potentials_give_none():
    assert Blockwise(RowSoftmax()).bind(SIZES).solve(random_costs(12, 4), 0.1).potentials is None


def test_the_slowest_block_is_reported():
    costs = random_costs(12, 4)
    costs[:4] = 0.0
    plan = Blockwise(Sinkhorn(max_iterations=4, tolerance=1e-12)).bind(SIZES).solve(costs, 0.1)
    assert (plan.iterations, plan.converged) == (4, False)


def test_solving_before_the_blocks_are_known_is_refused():
    with pytest.raises(ConfigError, match=r"call bind\(block_sizes\)"):
        Blockwise(Sinkhorn()).solve(random_costs(4, 3), 0.1)


def test_costs_of_another_length_are_refused():
    with pytest.raises(ConfigError, match=r"12 rows, .*\(3, 1, 8\).* got shape \(11, 4\)"):
        Blockwise(Sinkhorn()).bind(SIZES).solve(random_costs(11, 4), 0.1)


def test_warm_potentials_of_other_blocks_are_refused():
    warm = Potentials(torch.zeros(12), torch.zeros(2, 4))
    with pytest.raises(ConfigError, match="3 column potentials, one per block, got 2"):
        Blockwise(Sinkhorn()).bind(SIZES).solve(random_costs(12, 4), 0.1, warm)


@pytest.mark.parametrize("sizes", [(), (3, 0), (-1,)], ids=str)
def test_empty_blocks_are_refused(sizes):
    with pytest.raises(ConfigError, match="block size"):
        Blockwise(Sinkhorn()).bind(sizes)


@pytest.mark.parametrize("inner", [Blockwise(Sinkhorn()), "softmax"], ids=repr)
def test_an_inner_solver_that_cannot_work_is_refused(inner):
    with pytest.raises(ConfigError, match="inner must be a solver.* got"):
        Blockwise(inner)


def test_other_solvers_do_not_mind_blocks():
    assert Sinkhorn().bind(SIZES) == Sinkhorn()
