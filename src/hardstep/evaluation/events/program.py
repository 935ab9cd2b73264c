"""What a kernel of events consists of: slots that hold changed values, and stages between them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from hardstep.evaluation.events.layouts import Layout
from hardstep.evaluation.fused.expressions import Kind
from hardstep.evaluation.incremental.columns import KnowsColumns

PATCH_BYTES = 256 << 20  # of an entry
TOGETHER = 4  # then multiplications, not loads, take the time

Lookup = Callable[[int], Tensor]  # a recorded base value, by number
Vector = Callable[[Lookup], Tensor]  # a number per channel


@dataclass(frozen=True, eq=False)
class Table:
    """The address of numbers that a step makes from recorded values."""

    key: tuple[object, ...]
    make: Callable[[Lookup], Tensor]
    size: int = 0  # how many numbers, about, if they are many


@dataclass(eq=False)
class Slot:
    """A changed value that stages hand on: its new numbers, by vectors that were touched."""

    kind: Kind
    layout: Layout
    level: float  # stages up to this level write it, stages of later ones read it
    base: Table  # its numbers where nothing is touched, a line per example or one for all

    @property
    def size(self) -> int:
        """Numbers per example."""
        return self.layout.size


@dataclass(frozen=True, eq=False)
class Room:
    """An offset in scratch memory: a part of a slot, or a stage's own room for work."""

    part: str
    owner: object


@dataclass(frozen=True, eq=False)
class Shared:
    """An offset in the scratch memory that a candidate's examples share."""

    owner: "Sums"


@dataclass(frozen=True, eq=False)
class Sums:
    """What is added up over examples, and what becomes of it; starts as zero."""

    num_bytes: int


@dataclass(frozen=True, eq=False)
class Stride:
    """Bytes from one example to the next in a table; none if all examples share a line."""

    table: Table


@dataclass(frozen=True, eq=False)
class Fixed:
    """The address of indices that do not change from step to step."""

    values: Tensor


@dataclass(frozen=True, eq=False)
class PerTile:
    """The address of something that belongs to a tile: columns that enter, losses that leave."""

    name: tuple[object, ...]


@dataclass(frozen=True)
class NextMember:
    """How many words behind a candidate's arguments those of the one beside it stand."""


Word = Room | Shared | Table | Stride | Fixed | PerTile | NextMember | int


def slot_words(slot: Slot) -> list[Word]:
    """What `Writer.slot` reads."""
    parts: list[Word] = [Room(part, slot) for part in ("new", "touched", "list", "count")]
    return [*parts, slot.base, Stride(slot.base)]


@dataclass(eq=False)
class Stage:
    """A function's text, without its name, and its arguments."""

    text: Callable[[str], str]  # with a name
    key: tuple[object, ...]  # stages with the same key have the same text
    words: list[Word]
    level: float
    slots: list[Slot]  # what it reads and writes
    work: int = 0  # numbers of 32 bits in its own room: a list of vectors, or their changes
    waits: bool = False  # runs once for a candidate, when all of its examples have come so far
    is_joint: bool = False  # runs once for all members of a group of candidates

    @property
    def adds(self) -> bool:
        """Whether it adds differences to numbers of the base."""
        return self.key[0] in (
            "enter",
            "filter",
            "spread",
            "rows",
            "product",
            "lanes",
            "weights",
            "statistics",
        )


@dataclass(frozen=True, eq=False)
class Entry:
    """A convolution with a changed filter: how the channel's new numbers are found."""

    node: Any
    slot: Slot
    order: Tensor  # places of pixels in a line of the slot
    length: int  # of a line
    taps: Tensor  # (taps, length): the pixel that each tap reads for a place; beyond all if none
    channels: int  # that a filter reads
    pixels: int  # of a channel that it reads
    size: int  # numbers of all patches

    @property
    def has_patches(self) -> bool:
        """Or they would take too much memory, and torch convolves."""
        return self.size * self.slot.kind.num_bytes <= PATCH_BYTES

    @property
    def pictures(self) -> Table:
        """What the filter reads."""
        index = self.node.args[0].index
        return Table(("value", index), lambda values: values(index))

    @property
    def patches(self) -> Table:
        """Every example's patches, (examples, groups · (channels · taps and one) · length)."""
        source, groups = self.node.args[0].index, self.node.args[8]

        def gather(values: Lookup) -> Tensor:
            pictures = values(source)
            flat = pictures.reshape(len(pictures) * groups, -1)
            ends = flat.new_tensor([0, 1]).expand(len(flat), -1)
            found = torch.cat([flat, ends], dim=1).index_select(1, self.places.flatten())
            return found.reshape(len(pictures), -1)

        weight = self.node.args[1].index
        key = ("patches", source, weight, self.slot.layout.key, groups)
        return Table(key, gather, self.size)

    @cached_property
    def places(self) -> Tensor:
        """Which numbers a group's patches hold, (channels · taps and one, length).

        Behind the group's numbers stand a 0, for pixels that are not there, and a 1, which a bias
        is multiplied by.
        """
        size = self.channels * self.pixels
        first = torch.arange(0, size, self.pixels)[:, None, None]
        found = torch.where(self.taps < self.pixels, self.taps + first, size).flatten(0, 1)
        inside = torch.full((1, self.length), size)
        inside[0, self.order.flatten()] = size + 1
        return torch.cat([found, inside])


@dataclass(frozen=True, eq=False)
class Spread:
    """A changed vector of parameters, spread over the pixels of a value."""

    make: Callable[[Lookup], Tensor]  # from parameters, of which some are (candidates, channels)
    row: int  # room for the channels


@dataclass(eq=False)
class Program:
    """Everything about a block's kernel but the numbers of a step."""

    examples: int
    lanes: int
    operators: Mapping[str, KnowsColumns]  # that nodes on parameters alone are
    slots: list[Slot] = field(default_factory=list)
    stages: list[Stage] = field(default_factory=list)
    entries: list[Entry] = field(default_factory=list)
    spreads: list[Spread] = field(default_factory=list)
    sums: list[Sums] = field(default_factory=list)
    cuts: dict[int, tuple[Slot, Layout]] = field(default_factory=dict)  # values that leave
    before: list[Any] = field(default_factory=list)  # nodes on parameters alone, by torch
    after: list[Any] = field(default_factory=list)  # nodes behind the cuts, by torch

    @property
    def together(self) -> int:
        """Candidates of a group, which share what joint stages read of weights and pictures."""
        return 1 if self.sums else TOGETHER

    @property
    def filter_work(self) -> int:
        """Multiply-adds of a candidate's changed filters with patches; kernels count the others."""
        patched = [entry for entry in self.entries if entry.has_patches]
        return self.examples * sum(len(entry.places) * entry.length for entry in patched)

    def list_added(self) -> list[Table]:
        """Numbers of the base that differences are added to."""
        adding = [stage for stage in self.stages if stage.adds]
        found = [slot.base for stage in adding for slot in stage.slots]
        return [*found, *(entry.pictures for entry in self.entries)]
