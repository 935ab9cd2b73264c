import pytest
import torch
from torch import nn

from hardstep.errors import ConfigError
from hardstep.subspaces import Full, LayerWise, Layout, PerTensor, RowWise, Sketch, trainable


def layout():
    return Layout(trainable(nn.Sequential(nn.Linear(6, 5), nn.Linear(5, 3))))


def test_every_tensor_is_searched_by_the_first_part_that_fits():
    bound = PerTensor({"1.*": Full(), "*.bias": LayerWise(1), "*": RowWise(1)}).bind(layout(), 2, 0)
    assert [block.names for block in bound.blocks] == [
        ("1.weight",),
        ("1.bias",),
        ("0.bias",),
        ("0.weight",),
    ]
    assert [block.size for block in bound.blocks] == [15, 3, 5, 12]


def test_a_part_without_tensors_is_left_out_and_draws_nothing():
    with_one = PerTensor({"none.*": Full(), "*": Full()}).bind(layout(), 2, 0)
    assert with_one.dim == layout().num_parameters


def test_parts_of_one_kind_draw_different_directions():
    twice = nn.Sequential(nn.Linear(6, 5), nn.Linear(6, 5))
    parts = PerTensor({"0.*": RowWise(1), "1.*": RowWise(1)})
    bound = parts.bind(Layout(trainable(twice)), 2, 0)
    assert not torch.equal(bound.maps[0].basis, bound.maps[1].basis)


def test_units_of_one_part_take_turns_while_the_other_is_searched_whole():
    parts = PerTensor({"1.*": RowWise(None), "*": RowWise(1, redraw=1, share=0.2)})
    bound = parts.bind(layout(), 2, 0)
    turns = set()
    for step in range(20):
        head, other = bound.maps
        assert head.units is None
        turns.update(other.units.tolist())
        assert len(other.units) == 1
        assert bound.commit(step, torch.zeros(bound.dim))
    assert turns == set(range(5))


def test_a_sketch_of_parts_reaches_all_tensors():
    bound = Sketch(PerTensor({"1.*": Full(), "*": RowWise(1)})).bind(layout(), 4, 0)
    changes = bound.expand(torch.ones(bound.dim))
    assert set(changes) == set(layout().specs)
    assert all(change.any() for change in changes.values())


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ({}, 'parts must be a dict such as {"head'),
        ([Full()], "parts must be a dict such as"),
        ({"*": Full}, r"'\*' must name a subspace such as RowWise\(8\), got <class"),
        ({"*": 8}, r"'\*' must name a subspace such as RowWise\(8\), got 8"),
    ],
)
def test_parts_that_are_no_subspaces_are_refused(parts, message):
    with pytest.raises(ConfigError, match=message):
        PerTensor(parts)


def test_a_tensor_without_a_part_is_named():
    message = r"no part is for '0.weight', only 1.\*; add one for"
    with pytest.raises(ConfigError, match=message):
        PerTensor({"1.*": Full()}).bind(layout(), 2, 0)
