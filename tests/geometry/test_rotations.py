import math

import pytest
import torch
from scipy import stats

from hardstep.geometry import Biased, Haar, haar

DRAWS = 40_000
EACH_DTYPE = pytest.mark.parametrize(
    ("dtype", "tolerance"), [(torch.float32, 1e-6), (torch.float64, 1e-12)], ids=str
)


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def assert_rotations(rotations, tolerance):
    dim = rotations.shape[-1]
    gram = rotations.mT @ rotations
    eye = torch.eye(dim, dtype=rotations.dtype).expand_as(gram)
    torch.testing.assert_close(gram, eye, rtol=0, atol=4 * tolerance)
    determinants = torch.linalg.det(rotations)
    one = torch.ones_like(determinants)
    torch.testing.assert_close(determinants, one, rtol=0, atol=8 * tolerance)


@EACH_DTYPE
@pytest.mark.parametrize("dim", [1, 2, 3, 8])
def test_haar_draws_are_rotations(dim, dtype, tolerance):
    rotations = haar(200, dim, generator(), dtype)
    assert rotations.shape == (200, dim, dim)
    assert rotations.dtype == dtype
    assert_rotations(rotations, tolerance)


@pytest.mark.parametrize("dim", [2, 3, 8])
def test_haar_entries_have_mean_zero_and_second_moment_one_over_d(dim):
    rotations = haar(DRAWS, dim, generator(dim), torch.float64)
    error = math.sqrt(1 / dim / DRAWS)
    assert float(rotations.mean(dim=0).abs().max()) < 5 * error
    # Var R_ij² = 3/(d(d+2)) − 1/d², from the moments of a point on the sphere.
    error = math.sqrt((3 / (dim * (dim + 2)) - 1 / dim**2) / DRAWS)
    assert float((rotations.square().mean(dim=0) - 1 / dim).abs().max()) < 5 * error


@pytest.mark.parametrize("dim", [3, 8])
def test_haar_entries_of_different_places_are_uncorrelated(dim):
    flat = haar(DRAWS, dim, generator(10 + dim), torch.float64).reshape(DRAWS, -1)
    products = (flat.T @ flat / DRAWS).fill_diagonal_(0)
    # Var R_ij R_kl is at most E R_ij⁴ = 3/(d(d+2)).
    assert float(products.abs().max()) < 5 * math.sqrt(3 / (dim * (dim + 2)) / DRAWS)


def test_in_two_dimensions_a_rotation_is_a_uniform_angle():
    rotations = haar(DRAWS, 2, generator(), torch.float64)
    cos, sin = rotations[:, 0, 0], rotations[:, 1, 0]
    assert torch.equal(rotations[:, 1, 1], cos)
    assert torch.equal(rotations[:, 0, 1], -sin)
    turns = (torch.atan2(sin, cos) / (2 * math.pi)).remainder(1.0)
    assert stats.kstest(turns.numpy(), "uniform").pvalue > 1e-6


def test_in_one_dimension_the_only_rotation_is_the_identity():
    moves = torch.tensor([[2.0], [-3.0], [0.0]])
    for rotation in (Haar(), Biased()):
        assert torch.equal(rotation.draw(moves, generator()), torch.ones(3, 1, 1))


def test_haar_does_not_look_at_the_previous_move():
    still, moving = torch.zeros(5, 4), torch.randn(5, 4, generator=generator(1))
    assert torch.equal(Haar().draw(still, generator()), Haar().draw(moving, generator()))


@EACH_DTYPE
@pytest.mark.parametrize("scale", [1e-12, 1.0, 1e12])
@pytest.mark.parametrize("dim", [2, 3, 8])
def test_biased_rotations_start_with_the_normalized_previous_move(dim, scale, dtype, tolerance):
    moves = scale * torch.randn(50, dim, generator=generator(1), dtype=dtype)
    rotations = Biased().draw(moves, generator())
    expected = moves / moves.norm(dim=1, keepdim=True)
    torch.testing.assert_close(rotations[:, :, 0], expected, rtol=0, atol=tolerance)
    assert_rotations(rotations, tolerance)


def test_a_move_along_an_axis_is_kept_exactly_along_it():
    moves = torch.diag(torch.tensor([1.0, -2.0, 3.0], dtype=torch.float64))
    first = Biased().draw(moves, generator())[:, :, 0]
    expected = torch.diag(torch.tensor([1.0, -1.0, 1.0], dtype=torch.float64))
    torch.testing.assert_close(first, expected, rtol=0, atol=1e-15)


@pytest.mark.parametrize("dim", [2, 3, 8])
def test_particles_that_did_not_move_get_exactly_the_haar_rotation(dim):
    moves = torch.randn(20, dim, generator=generator(1))
    still = torch.arange(20) % 3 == 0
    moves[still] = 0
    free, biased = Haar().draw(moves, generator()), Biased().draw(moves, generator())
    assert torch.equal(biased[still], free[still])
    assert not torch.isclose(biased[~still], free[~still]).all(dim=(1, 2)).any()
    assert torch.equal(Biased().draw(torch.zeros_like(moves), generator()), free)


def test_moves_too_small_to_have_a_direction_give_finite_rotations():
    moves = torch.full((4, 3), 1e-30)
    assert torch.equal(Biased().draw(moves, generator()), Haar().draw(moves, generator()))


@pytest.mark.parametrize("rotation", [Haar(), Biased()], ids=repr)
def test_the_same_generator_gives_the_same_draw_and_another_one_does_not(rotation):
    moves = torch.randn(6, 4, generator=generator(1))
    first = rotation.draw(moves, generator(3))
    assert torch.equal(first, rotation.draw(moves, generator(3)))
    assert not torch.equal(first, rotation.draw(moves, generator(4)))


def test_the_free_axes_of_a_biased_rotation_favor_no_direction():
    moves = torch.tensor([[0.0, 0.0, 2.0]], dtype=torch.float64).expand(DRAWS, 3)
    second = Biased().draw(moves, generator())[:, :, 1]
    # A uniform point of the circle: mean 0 and variance 1/2 per coordinate.
    assert float(second[:, :2].mean(dim=0).abs().max()) < 5 * math.sqrt(0.5 / DRAWS)
    turns = (torch.atan2(second[:, 1], second[:, 0]) / (2 * math.pi)).remainder(1.0)
    assert stats.kstest(turns.numpy(), "uniform").pvalue > 1e-6


def test_rotations_leave_the_global_generator_alone():
    before = torch.get_rng_state()
    Biased().draw(torch.ones(4, 3), generator())
    assert torch.equal(torch.get_rng_state(), before)
