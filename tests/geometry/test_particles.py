import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from hardstep.errors import ConfigError
from hardstep.geometry import ParticleMap, num_particles

EXAMPLES = settings(max_examples=60, deadline=None, derandomize=True)
GROUPS = st.lists(st.integers(1, 20), min_size=1, max_size=8)
DIMS = st.integers(1, 9)


def numbered(particles):
    """Coordinates 1, 2, 3, … so that zero can only be padding."""
    return torch.arange(1.0, particles.num_coordinates + 1, dtype=torch.float64)


@EXAMPLES
@given(sizes=GROUPS, dim=DIMS)
def test_coordinates_survive_the_way_to_particles_and_back(sizes, dim):
    particles = ParticleMap(sizes, dim)
    coordinates = numbered(particles)
    assert torch.equal(particles.to_coordinates(particles.to_particles(coordinates)), coordinates)


@EXAMPLES
@given(sizes=GROUPS, dim=DIMS)
def test_padding_reads_as_zero_and_nothing_written_to_it_comes_back(sizes, dim):
    particles = ParticleMap(sizes, dim)
    coordinates = numbered(particles)
    table = particles.to_particles(coordinates)
    assert torch.equal(table != 0, particles.real)
    soiled = torch.where(particles.real, table, torch.nan)
    assert torch.equal(particles.to_coordinates(soiled), coordinates)


@EXAMPLES
@given(sizes=GROUPS, dim=DIMS)
def test_there_are_as_many_particles_as_padded_groups_need(sizes, dim):
    particles = ParticleMap(sizes, dim)
    assert particles.num_particles == sum((size + dim - 1) // dim for size in sizes)
    assert particles.num_particles == sum(num_particles(size, dim) for size in sizes)
    assert particles.num_coordinates == sum(sizes)
    assert particles.index.shape == particles.real.shape == (particles.num_particles, dim)


@EXAMPLES
@given(sizes=GROUPS, dim=DIMS)
def test_no_particle_straddles_two_groups(sizes, dim):
    particles = ParticleMap(sizes, dim)
    owner = torch.repeat_interleave(torch.arange(len(sizes)), torch.tensor(sizes))
    for row, group in zip(particles.index, particles.group.tolist(), strict=True):
        held = row[row >= 0]
        assert len(held)
        assert set(owner[held].tolist()) == {group}


@EXAMPLES
@given(sizes=GROUPS, dim=DIMS)
def test_every_coordinate_has_exactly_one_place_and_padding_comes_last(sizes, dim):
    particles = ParticleMap(sizes, dim)
    held = particles.index[particles.real]
    assert torch.equal(held, torch.arange(particles.num_coordinates))
    assert not (particles.real[:, 1:] & ~particles.real[:, :-1]).any()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_particles_keep_the_dtype_of_their_coordinates(dtype):
    particles = ParticleMap([3, 5], 4)
    table = particles.to_particles(torch.ones(8, dtype=dtype))
    assert table.dtype == particles.to_coordinates(table).dtype == dtype


@pytest.mark.parametrize(("sizes", "dim"), [([], 2), ([3, 0], 2), ([3], 0), ([-1], 2)])
def test_empty_groups_and_dimensions_are_refused(sizes, dim):
    with pytest.raises(ConfigError, match="must be at least 1, got"):
        ParticleMap(sizes, dim)
