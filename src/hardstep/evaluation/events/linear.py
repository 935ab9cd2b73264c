"""Linear maps of changed values, by the weights that single numbers are added with."""

from functools import partial

import torch
from torch import Tensor

from hardstep.evaluation.events.maps import list_by
from hardstep.evaluation.events.planner import Planner
from hardstep.evaluation.events.program import Fixed, Slot, Table, Word, slot_words
from hardstep.evaluation.events.stages import write_scatter
from hardstep.evaluation.fused.expressions import Unfusable

MOST_ENTRIES = 1 << 24  # of a list of single weights


def as_index(values: Tensor) -> Fixed:
    """Numbers as kernels read them, in 32 bits."""
    if values.numel() and values.max() > torch.iinfo(torch.int32).max:
        raise Unfusable("a layer has more weights than 32 bits can number")
    return Fixed(values.to(torch.int32).contiguous())


def scatter_events(
    planner: Planner, slot: Slot, target: Slot, source: Tensor, place: Tensor, weights: Table
) -> None:
    """A stage that adds to each `place` what `source` changes by, times a weight."""
    words: list[Word] = [*slot_words(slot), *slot_words(target)]
    words += [Fixed(list_by(source, slot.size)), as_index(place), weights]
    write = partial(write_scatter, kind=slot.kind)
    planner.stage("weights", write, words, target.level - 0.5, [slot, target])
