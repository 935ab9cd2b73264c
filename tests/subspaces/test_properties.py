"""Properties every subspace shares, on every kind of model."""

import random

import numpy as np
import pytest
import torch

from hardstep.subspaces import Layout

from .catalogue import (
    LINEAR,
    MODELS,
    SUBSPACES,
    bound,
    flat,
    matrix,
    particles_by_block,
    randn,
    tensors_of,
)

EACH_MODEL = pytest.mark.parametrize("model", MODELS)
EACH_SUBSPACE = pytest.mark.parametrize("name", SUBSPACES)
EACH_LINEAR = pytest.mark.parametrize("name", LINEAR)
RANDOM = [name for name in SUBSPACES if name not in ("full", "rows-whole")]


def assert_displaced_is_base_plus_expand(subspace, tensors, dim, tolerance):
    """Two probes per particle; what padding holds must not matter, so it holds NaN."""
    dtype = subspace.layout.dtype
    for number, index in enumerate(particles_by_block(subspace, dim)):
        index = index.repeat_interleave(2, dim=0)
        offsets = torch.where(index >= 0, randn(*index.shape, seed=number), torch.nan).to(dtype)
        stacks = subspace.displaced(tensors, number, index, offsets)
        assert set(stacks) == set(subspace.blocks[number].names)
        for probe in range(len(index)):
            live = index[probe] >= 0
            coordinates = torch.zeros(subspace.dim, dtype=dtype)
            coordinates[subspace.starts[number] + index[probe][live]] = offsets[probe][live]
            for name, change in subspace.expand(coordinates).items():
                if name in stacks:
                    assert stacks[name].dtype == tensors[name].dtype
                    expected = tensors[name].detach() + change
                    torch.testing.assert_close(
                        stacks[name][probe], expected, rtol=tolerance, atol=tolerance
                    )
                else:
                    assert not change.any()


@EACH_MODEL
@EACH_SUBSPACE
def test_zero_coordinates_change_nothing(name, model):
    subspace, tensors = bound(name, model), tensors_of(model)
    changes = subspace.expand(torch.zeros(subspace.dim, dtype=torch.float64))
    assert set(changes) == set(tensors)
    for key, change in changes.items():
        assert change.shape == tensors[key].shape
        assert change.dtype == tensors[key].dtype
        assert torch.equal(change, torch.zeros_like(change))
    for number, index in enumerate(particles_by_block(subspace, 3)):
        zero = torch.zeros(index.shape, dtype=torch.float64)
        for key, stack in subspace.displaced(tensors, number, index, zero).items():
            assert torch.equal(stack, tensors[key].detach().expand_as(stack))


@EACH_MODEL
@EACH_SUBSPACE
def test_a_displaced_particle_is_the_base_plus_its_expansion(name, model):
    assert_displaced_is_base_plus_expand(bound(name, model), tensors_of(model), 3, 1e-10)


@EACH_SUBSPACE
@pytest.mark.parametrize("dim", [1, 8])
def test_particles_of_one_number_and_larger_than_their_groups_are_displaced_right(name, dim):
    for model in ("linear", "bare", "one-by-one"):
        subspace = bound(name, model, dim=dim)
        assert_displaced_is_base_plus_expand(subspace, tensors_of(model), dim, 1e-10)


@EACH_SUBSPACE
@pytest.mark.parametrize(
    ("dtype", "tolerance"),
    [(torch.float32, 1e-5), (torch.float16, 2e-3), (torch.bfloat16, 2e-2)],  # two units of half
    ids=str,
)
def test_narrower_tensors_are_displaced_in_their_own_dtype(name, dtype, tolerance):
    for model in ("linear", "bare", "lstm"):
        subspace, tensors = bound(name, model, dtype), tensors_of(model, dtype)
        assert subspace.layout.dtype == torch.float32
        assert_displaced_is_base_plus_expand(subspace, tensors, 3, tolerance)
        assert subspace.project(tensors).dtype == torch.float32


@EACH_SUBSPACE
def test_tensors_of_different_dtypes_share_the_widest_for_their_coordinates(name):
    tensors = {"weight": randn(4, 5).half(), "bias": randn(4), "rest": randn(6, 3).float()}
    subspace = SUBSPACES[name].bind(Layout(tensors), 3, 0)
    assert subspace.layout.dtype == torch.float64
    assert subspace.project(tensors).dtype == torch.float64
    assert_displaced_is_base_plus_expand(subspace, tensors, 3, 2e-3)


@EACH_MODEL
@EACH_LINEAR
def test_expand_is_linear(name, model):
    subspace = bound(name, model)
    first, second = randn(2, subspace.dim)
    together = flat(subspace, subspace.expand(2 * first - 3 * second))
    apart = 2 * flat(subspace, subspace.expand(first)) - 3 * flat(subspace, subspace.expand(second))
    torch.testing.assert_close(together, apart, rtol=0, atol=1e-12)
    assert float(together.norm()) > 0.1


@EACH_MODEL
@EACH_LINEAR
def test_project_is_the_transpose_of_expand(name, model):
    subspace = bound(name, model)
    coordinates = randn(subspace.dim)
    params = {spec.name: randn(*spec.shape, seed=3) for spec in subspace.layout}
    left = flat(subspace, subspace.expand(coordinates)) @ flat(subspace, params)
    right = coordinates @ subspace.project(params)
    assert float(left) == pytest.approx(float(right), abs=1e-10)
    columns = matrix(subspace)
    torch.testing.assert_close(
        subspace.project(params), columns.T @ flat(subspace, params), rtol=0, atol=1e-10
    )


@EACH_MODEL
@EACH_SUBSPACE
def test_columns_are_orthonormal_exactly_when_the_subspace_says_so(name, model):
    subspace = bound(name, model)
    columns = matrix(subspace)
    gram = columns.T @ columns
    deviation = float((gram - torch.eye(subspace.dim)).abs().max())
    if subspace.orthonormal:
        assert deviation < 1e-10
    else:
        assert name in ("sparse", "lowrank")
        assert deviation > 1e-3


@EACH_SUBSPACE
def test_a_model_with_a_wide_layer_shows_whether_columns_are_orthonormal(name):
    assert bound(name, "linear").orthonormal == (name not in ("sparse", "lowrank"))


@EACH_MODEL
@EACH_SUBSPACE
def test_groups_blocks_and_coordinates_add_up(name, model):
    subspace, tensors = bound(name, model), tensors_of(model)
    assert sum(subspace.group_sizes) == subspace.dim == subspace.starts[-1]
    assert sorted(n for block in subspace.blocks for n in block.names) == sorted(tensors)
    pieces = subspace.split(torch.arange(subspace.dim))
    assert [len(piece) for piece in pieces] == [block.size for block in subspace.blocks]
    assert torch.equal(torch.cat(pieces), torch.arange(subspace.dim))
    assert subspace.dim <= subspace.layout.num_parameters


@EACH_MODEL
@EACH_SUBSPACE
def test_memory_is_the_bytes_that_bases_hold(name, model):
    subspace = bound(name, model)
    inner = subspace.inner if name.startswith("sketch") else subspace
    tables = ("place", "unit", "units", "slot", "is_bias")  # who owns a coordinate: not a basis
    held = {
        tensor.untyped_storage().data_ptr(): tensor.untyped_storage().nbytes()
        for part in inner.parts
        for key, tensor in vars(part).items()
        if isinstance(tensor, torch.Tensor) and key not in tables
    }
    mixing = subspace.mixing.untyped_storage().nbytes() if inner is not subspace else 0
    assert subspace.memory == sum(held.values()) + mixing


@EACH_SUBSPACE
def test_the_same_seed_gives_the_same_bits(name):
    for model in ("linear", "bare", "conv2d"):
        first, second = matrix(bound(name, model)), matrix(bound(name, model))
        assert torch.equal(first, second)


@pytest.mark.parametrize("name", RANDOM)
def test_another_seed_gives_another_subspace(name):
    first, second = matrix(bound(name, "linear")), matrix(bound(name, "linear", seed=6))
    assert first.shape == second.shape
    assert float((first - second).abs().max()) > 0.1


@pytest.mark.parametrize("name", RANDOM)
def test_tensors_of_the_same_shape_get_different_directions(name):
    tensors = {"a": randn(6, 5), "b": randn(6, 5)}
    subspace = SUBSPACES[name].bind(Layout(tensors), 3, 0)
    columns = matrix(subspace)
    if name == "global" or name.startswith("sketch"):
        assert not torch.equal(columns[:30], columns[30:])
        return
    half = subspace.dim // 2
    assert not torch.equal(columns[:30, :half], columns[30:, half:])


@EACH_SUBSPACE
def test_nothing_is_drawn_from_the_global_generators(name):
    torch_state, numpy_state = torch.get_rng_state(), np.random.get_state()  # noqa: NPY002
    python_state = random.getstate()
    subspace = bound(name, "linear")
    for step in range(4):
        subspace.commit(step, randn(subspace.dim))
    subspace.load_state_dict(subspace.state_dict())
    subspace.expand(randn(subspace.dim))
    assert torch.equal(torch.get_rng_state(), torch_state)
    assert np.array_equal(np.random.get_state()[1], numpy_state[1])  # noqa: NPY002
    assert random.getstate() == python_state


@EACH_SUBSPACE
def test_tensors_are_read_and_never_written(name):
    tensors = {key: tensor.detach().clone() for key, tensor in tensors_of("bare").items()}
    kept = {key: tensor.clone() for key, tensor in tensors.items()}
    subspace = SUBSPACES[name].bind(Layout(tensors), 3, 0)
    for number, index in enumerate(particles_by_block(subspace, 3)):
        stacks = subspace.displaced(tensors, number, index, torch.ones(index.shape).double())
        for stack in stacks.values():
            stack.fill_(7.0)
    for change in subspace.expand(randn(subspace.dim)).values():
        change.fill_(7.0)
    subspace.project(tensors).fill_(7.0)
    subspace.commit(0, randn(subspace.dim))
    assert all(torch.equal(tensors[key], kept[key]) for key in kept)
