import pytest
import torch

from hardstep.errors import ConfigError
from hardstep.subspaces import Global, LayerWise, Layout, RowWise, SharedRows, layer_budget

from .catalogue import bound, flat, matrix, tensors_of


@pytest.mark.parametrize(
    ("rows", "columns", "rank", "budget"),
    [
        (128, 784, 4, 3_648),
        (10, 128, 4, 552),
        (10, 128, 8, 1_104),
        (8, 128, 8, 1_024),  # capped at the layer
        (3, 5, 100, 15),  # the rank itself is capped first
        (1, 1, 1, 1),
    ],
)
def test_a_layer_gets_rank_times_its_sides_but_never_more_than_it_has(rows, columns, rank, budget):
    assert layer_budget(rows, columns, rank) == budget


@pytest.mark.parametrize("name", ["layers", "adaptive", "sparse", "lowrank"])
def test_weights_get_their_budget_and_vectors_stay_whole(name):
    subspace = bound(name, "linear")
    assert [block.names for block in subspace.blocks] == [
        *(("0.weight",), ("0.bias",), ("2.weight",), ("2.bias",))
    ]
    assert [block.size for block in subspace.blocks] == [11, 5, 8, 3]


@pytest.mark.parametrize("name", ["layers", "adaptive", "sparse", "lowrank"])
def test_layers_whose_budget_covers_them_are_searched_whole(name):
    subspace = bound(name, "one-by-one")
    assert subspace.dim == subspace.layout.num_parameters
    assert subspace.memory == 0
    assert subspace.orthonormal
    assert torch.equal(matrix(subspace), torch.eye(subspace.dim, dtype=torch.float64))


def test_the_global_projection_mixes_all_tensors_in_every_direction():
    columns = matrix(bound("global", "linear"))
    pieces = columns.split([t.numel() for t in tensors_of("linear").values()])
    assert all(bool((piece.norm(dim=0) > 1e-3).all()) for piece in pieces)


def test_a_global_projection_larger_than_the_model_is_refused_with_a_way_out():
    layout = Layout({"x": torch.zeros(5)})
    assert Global(5).bind(layout, 2, 0).dim == 5
    with pytest.raises(ConfigError, match=r"at most the 5 parameters, got 6; use Full\(\)"):
        Global(6).bind(layout, 2, 0)


@pytest.mark.parametrize("kind", [LayerWise(1), RowWise(1), RowWise(1, SharedRows())], ids=repr)
def test_directions_favor_no_side_of_any_axis(kind):
    """The mean of Haar directions is zero; with the signs of a library's QR it is not."""
    num = 400
    layout = Layout({f"{i}": torch.zeros(5, 8, dtype=torch.float64) for i in range(num)})
    subspace = kind.bind(layout, 4, 0)
    first_of_each = torch.zeros(subspace.dim, dtype=torch.float64)
    first_of_each[list(subspace.starts[:-1])] = 1.0
    directions = flat(subspace, subspace.expand(first_of_each)).reshape(num, 40)
    used = directions.std(dim=0) > 0  # the first direction of a row-wise layer is in its first row
    dims = int(used.sum())
    assert dims == (40 if isinstance(kind, LayerWise) else 8)
    assert float(directions.mean(dim=0).abs().max()) < 5 / (dims * num) ** 0.5
    # Var u_i² = 2(d − 1)/(d²(d + 2)) for a uniform point u of the sphere in R^d.
    error = (2 * (dims - 1) / (dims**2 * (dims + 2)) / num) ** 0.5
    squares = directions[:, used].square().mean(dim=0)
    assert float((squares - 1 / dims).abs().max()) < 5 * error
