from itertools import cycle

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from hardstep.errors import ConfigError
from hardstep.geometry import num_particles
from hardstep.subspaces import Full, HaarRows, Layout, RowWise, SharedRows, layer_budget

from .catalogue import MODELS, bound, matrix, particles_by_block, randn, tensors_of

EXAMPLES = settings(max_examples=30, deadline=None, derandomize=True)
KINDS = ["rows", "rows-rank-2", "rows-shared", "rows-whole"]


@pytest.mark.parametrize(("name", "model"), [*zip(cycle(KINDS), MODELS, strict=False)])
def test_a_particle_touches_one_output_unit_and_its_bias_only(name, model):
    subspace, tensors = bound(name, model), tensors_of(model)
    specs = subspace.layout.specs
    for number, index in enumerate(particles_by_block(subspace, 3)):
        weight, *bias = subspace.blocks[number].names
        if not specs[weight].is_matrix:
            continue
        stacks = subspace.displace(tensors, number, index, torch.ones(index.shape).double())
        moved = (stacks[weight] - tensors[weight].detach()).flatten(2).norm(dim=2) > 1e-12
        for name_of_bias in bias:
            moved |= (stacks[name_of_bias] - tensors[name_of_bias].detach()).abs() > 1e-12
        assert (moved.sum(dim=1) == 1).all()
        assert moved.any(dim=0).all()  # and no unit is left out


@EXAMPLES
@given(
    rows=st.integers(1, 9),
    columns=st.integers(1, 9),
    rank=st.integers(1, 4),
    dim=st.integers(1, 8),
    has_bias=st.booleans(),
)
def test_a_layer_gets_its_budget_in_whole_particles_spread_evenly(
    rows, columns, rank, dim, has_bias
):
    tensors = {"weight": torch.zeros(rows, columns), "bias": torch.zeros(rows)}
    layout = Layout(tensors if has_bias else {"weight": tensors["weight"]})
    (block,) = RowWise(rank).bind(layout, dim, 0).blocks
    budget = layer_budget(rows, columns, rank) + has_bias * rows
    each = [num_particles(size, dim) for size in block.group_sizes]
    assert sum(each) == max(num_particles(budget, dim), rows)
    assert max(each) - min(each) <= 1
    assert min(each) >= 1
    longest = columns + has_bias
    assert all(size == longest or size % dim == 0 for size in block.group_sizes)
    assert max(block.group_sizes) <= longest


def test_every_unit_of_a_wide_layer_has_a_particle_though_the_budget_is_smaller():
    layout = Layout({"weight": torch.zeros(50, 2), "bias": torch.zeros(50)})
    (block,) = RowWise(1).bind(layout, 8, 0).blocks
    assert block.group_sizes == (3,) * 50  # two inputs and the bias, not eight


def test_the_budget_never_exceeds_the_layer():
    for rank in (2, 3, 50):
        layout = Layout({"weight": torch.zeros(3, 4), "bias": torch.zeros(3)})
        subspace = RowWise(rank).bind(layout, 5, 0)
        assert subspace.dim == 15


@pytest.mark.parametrize("model", ["linear", "channels-last", "attention", "bare", "frozen"])
def test_whole_rows_are_the_full_space_in_another_order(model):
    rows, full = bound("rows-whole", model), bound("full", model)
    assert rows.dim == full.dim
    columns = matrix(rows)
    assert torch.equal(columns.sum(dim=0), torch.ones(rows.dim, dtype=torch.float64))
    assert torch.equal(columns.sum(dim=1), torch.ones(rows.dim, dtype=torch.float64))


def test_whole_rows_are_grouped_by_unit_and_full_tensors_are_not():
    layout = Layout({"weight": torch.zeros(3, 4), "bias": torch.zeros(3)})
    assert RowWise(None).bind(layout, 2, 0).group_sizes == (5, 5, 5)
    assert Full().bind(layout, 2, 0).group_sizes == (12, 3)


def test_the_bias_is_the_last_coordinate_of_its_unit():
    tensors = {"weight": randn(4, 6), "bias": randn(4)}
    subspace = RowWise(1).bind(Layout(tensors), 2, 0)
    (block,) = subspace.blocks
    last = torch.tensor(block.group_sizes).cumsum(0) - 1
    for unit, coordinate in enumerate(last.tolist()):
        change = subspace.expand(torch.eye(subspace.dim, dtype=torch.float64)[coordinate])
        assert not change["weight"].any()
        assert change["bias"].tolist() == [float(unit == other) for other in range(4)]


def test_haar_rows_differ_from_unit_to_unit_and_shared_rows_do_not():
    layout = Layout({"weight": torch.zeros(4, 9, dtype=torch.float64)})
    for basis, shared in ((HaarRows(), False), (SharedRows(), True)):
        subspace = RowWise(1, basis=basis).bind(layout, 2, 0)
        assert subspace.group_sizes == (4, 4, 4, 2)  # (4 + 9)·1 coordinates are seven particles
        columns = matrix(subspace).reshape(4, 9, -1)
        assert torch.equal(columns[0, :, 0], columns[1, :, 4]) is shared


def test_shared_rows_hold_one_basis_instead_of_one_per_unit():
    layout = Layout({"weight": torch.zeros(4, 9, dtype=torch.float64)})
    haar, shared = (RowWise(1, basis=b).bind(layout, 2, 0) for b in (HaarRows(), SharedRows()))
    assert shared.memory == 4 * 9 * 8
    assert haar.memory == 4 * shared.memory


def test_redrawn_bases_change_every_third_step_and_stay_orthonormal():
    layout = Layout(tensors_of("linear"))
    kept, redrawn = RowWise(1).bind(layout, 2, 5), RowWise(1, redraw=3).bind(layout, 2, 5)
    assert torch.equal(matrix(redrawn), matrix(kept))
    for step in range(7):
        before = matrix(redrawn)
        changed = redrawn.commit(step, torch.zeros(redrawn.dim))
        assert changed is (step in (2, 5))
        assert torch.equal(matrix(redrawn), before) is not changed
        columns = matrix(redrawn)
        gram = columns.T @ columns
        assert float((gram - torch.eye(redrawn.dim)).abs().max()) < 1e-10


def test_redrawn_bases_are_restored_from_their_number():
    layout = Layout(tensors_of("linear"))
    one, other = (RowWise(1, redraw=1).bind(layout, 2, 5) for _ in range(2))
    for step in range(4):
        one.commit(step, torch.zeros(one.dim))
    assert not torch.equal(matrix(other), matrix(one))
    other.load_state_dict(one.state_dict())
    assert torch.equal(matrix(other), matrix(one))


@EXAMPLES
@given(units=st.integers(1, 12), share=st.floats(0.01, 1), has_bias=st.booleans())
def test_units_take_turns_and_none_waits_for_longer_than_a_round(units, share, has_bias):
    tensors = {"weight": torch.zeros(units, 3), "bias": torch.zeros(units)}
    layout = Layout(tensors if has_bias else {"weight": tensors["weight"]})
    subspace = RowWise(1, redraw=2, share=share).bind(layout, 2, 0)
    num = max(1, round(share * units))
    turns = -(-units // num)
    for _ in range(3):  # rounds
        seen = set()
        for _ in range(turns):
            changed = subspace.expand(torch.ones(subspace.dim))
            moved = {int(unit) for unit in changed["weight"].norm(dim=1).nonzero()}
            assert len(moved) == num
            if has_bias:
                assert {int(unit) for unit in changed["bias"].nonzero()} == moved
            seen |= moved
            assert subspace.commit(0, torch.zeros(subspace.dim)) is False
            assert subspace.commit(1, torch.zeros(subspace.dim)) is True
        assert len(seen) == units


def test_a_share_of_the_units_costs_that_share_of_the_evaluations_and_memory():
    layout = Layout({"weight": torch.zeros(40, 9), "bias": torch.zeros(40)})
    everyone, some = (RowWise(2, redraw=1, share=share).bind(layout, 4, 0) for share in (1, 0.25))
    assert some.dim == everyone.dim / 4
    assert some.memory == everyone.memory / 4


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"share": 0, "redraw": 1}, r"share must be a number in \(0, 1\], got 0"),
        ({"share": 1.5, "redraw": 1}, r"share must be a number in \(0, 1\], got 1.5"),
        ({"share": 0.5}, "with share=0.5 the other units would never train; give redraw"),
    ],
)
def test_a_share_that_makes_no_sense_is_refused(options, sentence):
    with pytest.raises(ConfigError, match=sentence):
        RowWise(1, **options)
