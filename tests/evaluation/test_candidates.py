import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from hardstep.evaluation import Span
from hardstep.subspaces import Full, LayerWise, RowWise

from .catalogue import candidates_for, made, parameter_sets

EXAMPLES = settings(max_examples=40, deadline=None, derandomize=True)
SUBSPACES = {"full": Full(), "rows": RowWise(1), "layers": LayerWise(1)}


def model():
    return made(lambda: nn.Sequential(nn.Linear(4, 3), nn.LayerNorm(3), nn.Linear(3, 5))).double()


@st.composite
def some_candidates(draw):
    """Candidates of a random subset of particles."""
    subspace = SUBSPACES[draw(st.sampled_from(sorted(SUBSPACES)))]
    dim, vertices, probes = (draw(st.integers(1, top)) for top in (5, 4, 3))
    whole = candidates_for(model(), subspace, dim=dim)
    asked = draw(st.sets(st.integers(0, whole.particles.num_particles - 1), min_size=1))
    return candidates_for(
        model(), subspace, dim=dim, vertices=vertices, probes=probes, asked=sorted(asked)
    )


@EXAMPLES
@given(candidates=some_candidates())
def test_spans_cover_all_candidates_in_order_and_each_stays_in_its_block(candidates):
    blocks = candidates.subspace.blocks
    owner = [b for b, block in enumerate(blocks) for _ in block.group_sizes]
    per_particle = candidates.offsets.shape[1] * candidates.offsets.shape[2]
    end = 0
    for span in candidates.spans():
        assert span.start == end < span.end
        end = span.end
        asked = candidates.asked[span.start // per_particle : span.end // per_particle]
        assert {owner[g] for g in candidates.particles.group[asked].tolist()} == {span.block}
    assert end == len(candidates)


@EXAMPLES
@given(start=st.integers(0, 50), length=st.integers(1, 60), size=st.integers(1, 70))
def test_tiles_cover_their_span_in_order(start, length, size):
    tiles = list(Span(3, start, start + length).tiles(size))
    assert [n for tile in tiles for n in range(tile.start, tile.end)] == [
        *range(start, start + length)
    ]
    assert {tile.block for tile in tiles} == {3}
    assert all(tile.end - tile.start == size for tile in tiles[:-1])


@EXAMPLES
@given(candidates=some_candidates())
def test_each_candidate_is_the_base_plus_the_expansion_of_its_offsets(candidates):
    expected = parameter_sets(candidates)
    assert len(expected) == len(candidates)
    for number in {0, len(candidates) // 2, len(candidates) - 1}:
        found = candidates.parameters(number)
        assert found.keys() == expected[number].keys()
        for name, tensor in found.items():
            torch.testing.assert_close(tensor, expected[number][name], rtol=0, atol=1e-12)
            assert not tensor.requires_grad


def test_fewer_candidates_are_built_together_where_they_change_large_tensors(monkeypatch):
    monkeypatch.setattr("hardstep.evaluation.candidates.STACK_BYTES", 4 * 40)
    candidates = candidates_for({"x": torch.zeros(10), "y": torch.zeros(1)}, vertices=5, dim=5)
    sizes = [(tile.block, tile.end - tile.start) for tile in candidates.tiles(3)]
    assert sizes == [(0, 3), (0, 3), (0, 3), (0, 1), (1, 3), (1, 2)]
    sizes = [(tile.block, tile.end - tile.start) for tile in candidates.tiles(100)]
    assert sizes == [(0, 4), (0, 4), (0, 2), (1, 5)]


def test_a_span_of_candidates_is_the_stack_of_each():
    candidates = candidates_for(model(), LayerWise(1))
    for span in candidates.spans():
        stacks = candidates.changed(span)
        assert set(stacks) == set(candidates.subspace.blocks[span.block].names)
        for number in (span.start, span.end - 1):
            for name, stack in stacks.items():
                assert len(stack) == span.end - span.start
                one = candidates.parameters(number)[name]
                torch.testing.assert_close(stack[number - span.start], one, rtol=0, atol=1e-12)


def test_tensors_outside_the_block_are_the_models_own_numbers():
    candidates = candidates_for(model())
    first = candidates.parameters(0)
    assert torch.equal(first["2.weight"], candidates.base["2.weight"])
    assert first["2.weight"].data_ptr() == candidates.base["2.weight"].data_ptr()


def test_padding_is_minus_one_in_the_coordinates_of_a_span():
    candidates = candidates_for({"x": torch.zeros(3), "y": torch.zeros(5)}, dim=4, vertices=1)
    first, second = (candidates.coordinates(span)[0].tolist() for span in candidates.spans())
    assert first == [[0, 1, 2, -1]]
    assert second == [[0, 1, 2, 3], [4, -1, -1, -1]]


@pytest.mark.parametrize("number", [-1, 30])
def test_a_candidate_that_does_not_exist_is_refused(number):
    candidates = candidates_for({"x": torch.zeros(45)}, vertices=2)
    assert len(candidates) == 30
    with pytest.raises(IndexError, match=f"candidate {number} of 30"):
        candidates.parameters(number)
