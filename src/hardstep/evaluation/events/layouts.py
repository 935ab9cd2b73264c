"""Where the numbers of one example stand in memory.

Kernels work on *vectors* of LANES neighboring numbers. Two orders matter. Where a candidate changes
one channel, numbers of a channel are neighbors, so that vectors are full; behind a convolution all
channels of a pixel change together, so channels are neighbors there. Views of a value do not move
its numbers: they only name them otherwise.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from math import prod

import torch
from torch import Tensor

Shape = tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Layout:
    """`places[index]` is where a number of an example stands, among `size` of them.

    Places that no index names hold nothing that anybody reads.
    """

    places: Tensor  # the value's shape without its axis of examples
    size: int  # whole vectors
    axis: int = 0  # the axis of examples in the value

    @cached_property
    def key(self) -> tuple[object, ...]:
        """Equal for layouts that put the same number at the same place."""
        return (self.axis, self.size, tuple(self.places.shape), self.places.numpy().tobytes())

    @cached_property
    def is_unique(self) -> bool:
        """Whether no place has two names."""
        return int(self.places.flatten().bincount().max()) == 1

    @cached_property
    def sources(self) -> Tensor:
        """Which number stands at each place; any where none does."""
        found = torch.zeros(self.size, dtype=torch.long)
        found[self.places.flatten()] = torch.arange(self.places.numel())
        return found

    @cached_property
    def gaps(self) -> Tensor:
        """The places that hold no number."""
        return (~self.named).nonzero()[:, 0]

    @cached_property
    def named(self) -> Tensor:
        """Which places hold a number."""
        found = torch.zeros(self.size, dtype=torch.bool)
        found[self.places.flatten()] = True
        return found

    def named_bits(self, lanes: int) -> Tensor:
        """The same as bits, an int32 for each vector of at most 16 lanes."""
        bits = self.named.reshape(-1, lanes).long() << torch.arange(lanes)
        return bits.sum(1).int()

    def lay_out(self, value: Tensor) -> Tensor:
        """A value with examples, (examples, size), zero where nothing stands."""
        flat = value.movedim(self.axis, 0).flatten(1)
        # index_select of a matrix is several times as fast as the same by brackets
        return flat.index_select(1, self.sources).index_fill_(1, self.gaps, 0)

    def restore(self, table: Tensor) -> Tensor:
        """A table (n, size) as values (n, *shape without examples)."""
        found = table.index_select(1, self.places.flatten())
        return found.reshape(len(table), *self.places.shape)


def pad(size: int, lanes: int) -> int:
    """The next multiple of the number of lanes."""
    return -(-size // lanes) * lanes


def rows_of_pixels(shape: Shape, lanes: int) -> Layout:
    """Channels of (channels, *pixels) next to each other, pixel after pixel."""
    channels, pixels, row = shape[0], prod(shape[1:]), pad(shape[0], lanes)
    places = torch.arange(pixels) * row + torch.arange(channels)[:, None]
    return Layout(places.reshape(shape), pixels * row)


def planes_of_channels(shape: Shape, order: Tensor, length: int) -> Layout:
    """Pixels of (channels, *pixels) next to each other, in an order with room for `length`."""
    places = torch.arange(shape[0])[:, None] * length + order.flatten()
    return Layout(places.reshape(shape), shape[0] * length)


def plain_order(pixels: Shape, lanes: int) -> tuple[Tensor, int]:
    """Pixels as they come: the place of each, and the room they take."""
    num = prod(pixels)
    return torch.arange(num).reshape(pixels), pad(num, lanes)


def window_order(pixels: Shape, window: Shape, lanes: int) -> tuple[Tensor, int]:
    """Pixels such that windows side by side have their first pixels next to each other, and so on.

    A maximum over windows is then a maximum of vectors. Pixels beyond the last window come last.
    """
    counts = [size // side for size, side in zip(pixels, window, strict=True)]
    plane = pad(prod(counts), lanes)
    grid = torch.meshgrid(*[torch.arange(size) for size in pixels], indexing="ij")
    inside = torch.ones(pixels, dtype=torch.bool)
    place, phase = torch.zeros(pixels, dtype=torch.long), torch.zeros(pixels, dtype=torch.long)
    for at, side, count in zip(grid, window, counts, strict=True):
        inside &= at < side * count
        place = place * count + at // side
        phase = phase * side + at % side
    order = phase * plane + place
    rest = int((~inside).sum())
    order[~inside] = prod(window) * plane + torch.arange(rest)
    return order, prod(window) * plane + pad(rest, lanes)


def follow_view(layout: Layout, examples: int, view: Callable[[Tensor], object]) -> list[Layout]:
    """The layouts of what a view of a value returns; none where an example does not stay one.

    The view is taken of a tensor of places, numbered on through all examples.
    """
    shape = layout.places.shape
    offsets = torch.arange(examples).reshape(-1, *[1] * len(shape)) * layout.size
    numbers = (layout.places + offsets).movedim(0, layout.axis).contiguous()
    result = view(numbers)
    outputs = result if isinstance(result, tuple | list) else (result,)
    found = [_find_examples(out, layout, examples) for out in outputs if isinstance(out, Tensor)]
    return [one for one in found if one is not None] if None not in found else []


def _find_examples(numbers: Tensor, layout: Layout, examples: int) -> Layout | None:
    axes = [axis for axis, size in enumerate(numbers.shape) if size == examples]
    for axis in sorted(axes, key=lambda axis: axis != layout.axis):
        places = numbers.select(axis, 0)
        step = torch.arange(examples).reshape(-1, *[1] * places.dim()) * layout.size
        if torch.equal(numbers.movedim(axis, 0), places + step) and places.max() < layout.size:
            return Layout(places.contiguous(), layout.size, axis)
    return None
