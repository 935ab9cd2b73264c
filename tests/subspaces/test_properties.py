"""Properties every subspace shares, on a set of models that covers every kind of tensor.

What a subspace does to a model depends on its layout alone. So every subspace meets a network
with wide layers and biases, and the tensors without layers; the other models, dtypes and sizes
of particles go round, each to the subspaces whose turn it is.
"""

import random
from functools import cache
from itertools import cycle
from typing import NamedTuple

import numpy as np
import pytest
import torch

from hardstep.errors import ConfigError
from hardstep.subspaces import Adaptive, Global, LayerWise, Layout, LowRank, RowWise, Sparse

from .catalogue import (
    LINEAR,
    MODELS,
    OBLIQUE,
    SUBSPACES,
    bound,
    flat,
    matrix,
    particles_by_block,
    randn,
    tensors_of,
)

RANDOM = [name for name in SUBSPACES if name not in ("full", "rows-whole")]
EACH_SUBSPACE = pytest.mark.parametrize("name", SUBSPACES)
# Two units of half precision, and rounding of the wider ones.
TOLERANCES = {
    torch.float64: 1e-10,
    torch.float32: 1e-5,
    torch.float16: 2e-3,
    torch.bfloat16: 2e-2,
}


class Case(NamedTuple):
    """A subspace on a model, in a dtype and with particles of a dimension."""

    name: str
    model: str
    dtype: torch.dtype = torch.float64
    dim: int = 3


def cases():
    """Every subspace four times: with every dtype, and with small and large particles."""
    others = cycle(model for model in MODELS if model not in ("linear", "bare"))
    halves = cycle([torch.float16, torch.bfloat16])
    for number, name in enumerate(SUBSPACES):
        yield Case(name, "linear", dim=8 if number % 2 else 3)
        yield Case(name, "bare", next(halves))
        yield Case(name, next(others), dim=1)
        yield Case(name, next(others), torch.float32, dim=3 if number % 2 else 8)


CASES = list(cases())
EACH_CASE = pytest.mark.parametrize("case", CASES, ids=lambda case: "-".join(map(str, case)))
EXACT = [(case.name, case.model) for case in CASES if case.dtype == torch.float64]
EACH_EXACT = pytest.mark.parametrize(
    ("name", "model"), [*EXACT, *((name, "bare") for name in SUBSPACES)]
)


@cache
def projection(name, model):
    """A subspace before its first step, and its Π."""
    subspace = bound(name, model)
    return subspace, matrix(subspace)


def assert_displacing_is_base_plus_expand(subspace, tensors, dim, tolerance):
    """Two probes per particle; what padding holds must not matter, so it holds NaN."""
    dtype = subspace.layout.dtype
    for number, index in enumerate(particles_by_block(subspace, dim)):
        index = index.repeat_interleave(2, dim=0)
        offsets = torch.where(index >= 0, randn(*index.shape, seed=number), torch.nan).to(dtype)
        offsets[1::4] *= 0.0  # some particles stay where they are
        stacks = subspace.displace(tensors, number, index, offsets)
        assert set(stacks) == set(subspace.blocks[number].names)
        for probe in range(len(index)):
            live = index[probe] >= 0
            coordinates = torch.zeros(subspace.dim, dtype=dtype)
            coordinates[subspace.starts[number] + index[probe][live]] = offsets[probe][live]
            for name, change in subspace.expand(coordinates).items():
                if name not in stacks:
                    assert not change.any()
                    continue
                assert stacks[name].dtype == tensors[name].dtype
                expected = tensors[name].detach() + change
                exact = not coordinates.any()
                torch.testing.assert_close(
                    stacks[name][probe],
                    expected,
                    rtol=0 if exact else tolerance,
                    atol=0 if exact else tolerance,
                )


@EACH_CASE
def test_a_displaced_particle_is_the_base_plus_its_expansion(case):
    subspace, tensors = bound(*case), tensors_of(case.model, case.dtype)
    assert subspace.layout.dtype == torch.promote_types(case.dtype, torch.float32)
    assert subspace.project(tensors).dtype == subspace.layout.dtype
    tolerance = TOLERANCES[case.dtype]
    assert_displacing_is_base_plus_expand(subspace, tensors, case.dim, tolerance)
    zero = torch.zeros(subspace.dim, dtype=subspace.layout.dtype)
    for key, change in subspace.expand(zero).items():
        assert torch.equal(change, torch.zeros_like(tensors[key]))


@EACH_SUBSPACE
def test_tensors_of_different_dtypes_share_the_widest_for_their_coordinates(name):
    tensors = {"weight": randn(4, 5).half(), "bias": randn(4), "rest": randn(6, 3).float()}
    subspace = SUBSPACES[name].bind(Layout(tensors), 3, 0)
    assert subspace.layout.dtype == torch.float64
    assert subspace.project(tensors).dtype == torch.float64
    assert_displacing_is_base_plus_expand(subspace, tensors, 3, 2e-3)


@EACH_EXACT
def test_expand_and_project_are_a_matrix_and_its_transpose(name, model):
    subspace, columns = projection(name, model)
    deviation = float((columns.T @ columns - torch.eye(subspace.dim)).abs().max())
    if subspace.orthonormal:
        assert deviation < 1e-10
    else:
        assert name in OBLIQUE
        assert deviation > 1e-3
    coordinates, other = randn(2, subspace.dim)
    for key, stack in subspace.expand_many(torch.stack([other, coordinates])).items():
        alone = subspace.expand(coordinates)[key]
        torch.testing.assert_close(stack[1], alone, rtol=0, atol=1e-12)
    if name not in LINEAR:
        return
    params = {spec.name: randn(*spec.shape, seed=3) for spec in subspace.layout}
    change, inside = subspace.expand(coordinates), subspace.project(params)
    expected = columns.T @ flat(subspace, params)
    torch.testing.assert_close(inside, expected, rtol=0, atol=1e-10)
    torch.testing.assert_close(flat(subspace, change), columns @ coordinates, rtol=0, atol=1e-12)


@EACH_SUBSPACE
def test_groups_blocks_and_coordinates_add_up(name):
    assert bound(name, "linear").orthonormal == (name not in OBLIQUE)
    for model in MODELS:
        subspace, tensors = bound(name, model), tensors_of(model)
        assert sum(subspace.group_sizes) == subspace.dim == subspace.starts[-1]
        assert sorted(n for block in subspace.blocks for n in block.names) == sorted(tensors)
        pieces = subspace.split(torch.arange(subspace.dim))
        assert [len(piece) for piece in pieces] == [block.size for block in subspace.blocks]
        assert torch.equal(torch.cat(pieces), torch.arange(subspace.dim))
        assert subspace.dim <= subspace.layout.num_parameters


@EACH_SUBSPACE
def test_memory_is_the_bytes_that_bases_hold(name):
    for model in ("linear", "bare", "one-by-one"):
        subspace = bound(name, model)
        inner = subspace.inner if name.startswith(("sketch", "scaled")) else subspace
        tables = ("place", "unit", "units", "slot", "is_bias")  # whose a coordinate is: no basis
        held = {
            tensor.untyped_storage().data_ptr(): tensor.untyped_storage().nbytes()
            for block_map in {*subspace.maps, *inner.maps}
            for key, tensor in vars(block_map).items()
            if isinstance(tensor, torch.Tensor) and key not in tables
        }
        assert subspace.memory == sum(held.values())


@pytest.mark.parametrize("name", RANDOM)
def test_a_subspace_is_a_function_of_its_seed_and_tensors_get_different_directions(name):
    columns = projection(name, "linear")[1]
    assert torch.equal(columns, matrix(bound(name, "linear")))
    other = matrix(bound(name, "linear", seed=6))
    assert columns.shape == other.shape
    assert float((columns - other).abs().max()) > 0.1
    subspace = SUBSPACES[name].bind(Layout({"a": randn(6, 5), "b": randn(6, 5)}), 3, 0)
    first, second = matrix(subspace).split(30)
    if len(subspace.blocks) == 2:
        first, second = first[:, : subspace.starts[1]], second[:, subspace.starts[1] :]
    assert not torch.equal(first, second)


@EACH_SUBSPACE
def test_global_generators_and_given_tensors_are_left_alone(name):
    torch_state, numpy_state = torch.get_rng_state(), np.random.get_state()  # noqa: NPY002
    python_state = random.getstate()
    tensors = {key: tensor.detach().clone() for key, tensor in tensors_of("bare").items()}
    kept = {key: tensor.clone() for key, tensor in tensors.items()}
    subspace = SUBSPACES[name].bind(Layout(tensors), 3, 0)
    for number, index in enumerate(particles_by_block(subspace, 3)):
        stacks = subspace.displace(tensors, number, index, torch.ones(index.shape).double())
        for stack in stacks.values():
            stack.fill_(7.0)
    for change in subspace.expand(randn(subspace.dim)).values():
        change.fill_(7.0)
    subspace.project(tensors).fill_(7.0)
    for step in range(4):
        subspace.commit(step, randn(subspace.dim))
    subspace.load_state_dict(subspace.state_dict())
    assert all(torch.equal(tensors[key], kept[key]) for key in kept)
    assert torch.equal(torch.get_rng_state(), torch_state)
    assert np.array_equal(np.random.get_state()[1], numpy_state[1])  # noqa: NPY002
    assert random.getstate() == python_state


@pytest.mark.parametrize(
    ("make", "what"),
    [
        (RowWise, "RowWise: rank"),
        (LayerWise, "LayerWise: rank"),
        (LowRank, "LowRank: rank"),
        (Sparse, "Sparse: rank"),
        (Adaptive, "Adaptive: rank"),
        (Global, "Global: dim"),
        (lambda value: Adaptive(1, every=value), "Adaptive: every"),
        (lambda value: RowWise(1, redraw=value), "RowWise: redraw, unless None,"),
    ],
)
def test_counts_below_one_and_fractions_are_refused(make, what):
    for value in (0, -2, 2.5):
        with pytest.raises(ConfigError, match=f"{what} must be a whole number >= 1, got {value}"):
            make(value)
