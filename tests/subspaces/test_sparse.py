import math

import pytest
import torch

from hardstep.subspaces import Layout, Sparse

from .catalogue import bound, matrix


@pytest.mark.parametrize("model", ["linear", "bare", "conv3d"])
def test_directions_have_unit_length(model):
    lengths = matrix(bound("sparse", model)).norm(dim=0)
    torch.testing.assert_close(lengths, torch.ones_like(lengths), rtol=0, atol=1e-12)


@pytest.mark.parametrize("shape", [(5, 6), (7, 7), (3, 4, 5), (13, 11)])
def test_each_direction_has_sqrt_n_equal_entries_in_different_places(shape):
    numel = math.prod(shape)
    width = math.ceil(math.sqrt(numel))
    subspace = Sparse(1).bind(Layout({"w": torch.zeros(shape, dtype=torch.float64)}), 3, 0)
    columns = matrix(subspace)
    assert ((columns != 0).sum(dim=0) == width).all()
    sizes = columns[columns != 0].abs()
    torch.testing.assert_close(sizes, torch.full_like(sizes, width**-0.5), rtol=0, atol=1e-15)


def test_every_number_of_the_tensor_can_be_reached_and_signs_are_fair():
    layout = Layout({"w": torch.zeros(40, 40, dtype=torch.float64)})
    columns = matrix(Sparse(8).bind(layout, 3, 0))
    assert (columns != 0).any(dim=1).all()
    signs = columns[columns != 0].sign()
    assert abs(float(signs.mean())) < 5 / math.sqrt(len(signs))


def test_it_holds_five_bytes_per_entry():
    subspace = Sparse(1).bind(Layout({"w": torch.zeros(5, 6), "b": torch.zeros(5)}), 3, 0)
    assert subspace.memory == 5 * 11 * 6
