import math

import pytest
import torch

from hardstep.errors import ConfigError
from hardstep.geometry import Cube, Orthoplex, Simplex

FRAMES = [
    *(Simplex(dim) for dim in (1, 2, 3, 5, 8, 16, 64)),
    *(Orthoplex(dim) for dim in (1, 2, 3, 5, 8, 16, 64)),
    *(Cube(dim) for dim in (1, 2, 3, 5, 8)),
]
EACH_FRAME = pytest.mark.parametrize("polytope", FRAMES, ids=repr)


@EACH_FRAME
def test_vertices_have_unit_length(polytope):
    lengths = polytope.vertices().norm(dim=1)
    torch.testing.assert_close(lengths, torch.ones_like(lengths), rtol=0, atol=1e-14)


@EACH_FRAME
def test_vertices_sum_to_zero(polytope):
    for column in polytope.vertices().T.tolist():
        assert abs(math.fsum(column)) <= 1e-14


@EACH_FRAME
def test_vertices_are_a_tight_frame(polytope):
    vertices = polytope.vertices()
    gram = vertices.T @ vertices * (polytope.dim / len(vertices))
    eye = torch.eye(polytope.dim, dtype=torch.float64)
    torch.testing.assert_close(gram, eye, rtol=0, atol=1e-14)


@EACH_FRAME
def test_vertices_are_distinct_float64_rows_and_as_many_as_promised(polytope):
    vertices = polytope.vertices()
    assert vertices.dtype == torch.float64
    assert vertices.shape == (polytope.num_vertices, polytope.dim)
    assert len(torch.unique(vertices, dim=0)) == polytope.num_vertices


@pytest.mark.parametrize("dim", [1, 2, 3, 8])
def test_counts_are_d_plus_1_and_2d_and_2_to_the_d(dim):
    assert Simplex(dim).num_vertices == dim + 1
    assert Orthoplex(dim).num_vertices == 2 * dim
    assert Cube(dim).num_vertices == 2**dim


@pytest.mark.parametrize("dim", [1, 2, 3, 8, 64])
def test_simplex_vertices_meet_at_inner_product_minus_one_over_d(dim):
    vertices = Simplex(dim).vertices()
    off_diagonal = (vertices @ vertices.T)[~torch.eye(dim + 1, dtype=torch.bool)]
    expected = torch.full_like(off_diagonal, -1 / dim)
    torch.testing.assert_close(off_diagonal, expected, rtol=0, atol=1e-14)


def test_orthoplex_vertices_come_in_opposite_pairs():
    vertices = Orthoplex(5).vertices()
    assert torch.equal(vertices[0::2], -vertices[1::2])
    assert torch.equal(vertices[0::2], torch.eye(5, dtype=torch.float64))


@pytest.mark.parametrize("kind", [Simplex, Orthoplex, Cube])
@pytest.mark.parametrize("dim", [0, -3])
def test_a_dimension_below_one_is_refused_with_its_value(kind, dim):
    with pytest.raises(ConfigError, match=rf"{kind.__name__}: dim must be .* got {dim}"):
        kind(dim)


def test_a_cube_of_8192_corners_is_refused():
    assert Cube(12).num_vertices == 4096
    with pytest.raises(ConfigError, match="Cube: dim must be at most 12, got 13"):
        Cube(13)
