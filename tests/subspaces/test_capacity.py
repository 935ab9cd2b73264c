import re

import pytest
import torch

from hardstep.errors import CapacityError, HardstepError
from hardstep.subspaces import (
    Adaptive,
    Full,
    Global,
    LayerWise,
    Layout,
    LowRank,
    RowWise,
    SharedRows,
    Sketch,
    Sparse,
)

from .catalogue import tensors_of

BOUNDED = [
    (lambda limit: LayerWise(1, max_bytes=limit), "RowWise(rank=1)"),
    (lambda limit: Adaptive(1, max_bytes=limit), "RowWise(rank=1)"),
    (lambda limit: Global(7, max_bytes=limit), "RowWise or Sparse"),
    (lambda limit: Sketch(RowWise(1), max_bytes=limit), "fewer directions or a smaller subspace"),
    (lambda limit: Sparse(1, max_bytes=limit), "a smaller rank"),
    (lambda limit: RowWise(1, max_bytes=limit), "SharedRows"),
    (lambda limit: RowWise(1, SharedRows(), max_bytes=limit), "a smaller rank"),
    (lambda limit: RowWise(None, max_bytes=limit), "Sparse"),
]
EACH = pytest.mark.parametrize(("make", "alternative"), BOUNDED)


@EACH
def test_a_projection_is_refused_one_byte_below_what_it_holds(make, alternative):
    layout = Layout(tensors_of("linear"))
    held = make(None).bind(layout, 3, 0).memory
    assert make(held).bind(layout, 3, 0).memory == held
    message = rf"needs {held:,} bytes and {held - 1:,} bytes are allowed .*; use .*"
    with pytest.raises(CapacityError, match=message + re.escape(alternative)):
        make(held - 1).bind(layout, 3, 0)


def huge():
    """A layer of 40 GB, of which nothing is ever allocated."""
    return Layout({"weight": torch.empty(100_000, 100_000, device="meta")})


@pytest.mark.parametrize("subspace", [LayerWise(64), Adaptive(64), Global(10**6)], ids=repr)
def test_half_the_memory_is_the_limit_unless_told(subspace):
    with pytest.raises(CapacityError, match=r"needs [\d,]+\.\d\d GB and [\d,]+\.\d\d GB are"):
        subspace.bind(huge(), 8, 0)


def test_row_wise_bases_of_a_huge_layer_are_refused_before_they_are_drawn():
    with pytest.raises(CapacityError, match="SharedRows"):
        RowWise(64).bind(huge(), 8, 0)


def test_a_capacity_error_is_both_ours_and_a_memory_error():
    assert issubclass(CapacityError, HardstepError)
    assert issubclass(CapacityError, MemoryError)


def test_the_full_and_the_factored_space_hold_next_to_nothing():
    layout = Layout(tensors_of("linear"))
    assert Full().bind(layout, 3, 0).memory == 0
    assert LowRank(1).bind(layout, 3, 0).memory == 8 * (6 + 5 + 5 + 3)
