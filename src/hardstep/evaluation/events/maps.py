"""Where numbers go: targets of convolutions, of windows and of sums, as lists for kernels."""

from itertools import product
from math import prod
from typing import NamedTuple

import torch
from torch import Tensor

Shape = tuple[int, ...]


class Taps(NamedTuple):
    """A convolution's geometry: tap `tap[i]` carries pixel `source[i]` to pixel `target[i]`."""

    source: Tensor
    target: Tensor
    tap: Tensor


class Geometry(NamedTuple):
    """A convolution's sizes, one number per dimension of a picture."""

    kernel: Shape
    stride: Shape
    padding: Shape
    dilation: Shape
    transposed: bool = False


def find_taps(pixels: Shape, out: Shape, shape: Geometry) -> Taps:
    """Every pixel's way through every tap, by pixel."""
    grid = torch.stack(
        torch.meshgrid(*[torch.arange(size) for size in pixels], indexing="ij"), dim=-1
    ).reshape(-1, len(pixels))
    stride, padding, dilation = (torch.tensor(part) for part in shape[1:4])
    limits = torch.tensor(out)
    found = []
    for number, tap in enumerate(product(*[range(size) for size in shape.kernel])):
        reach = torch.tensor(tap) * dilation
        if shape.transposed:
            at, fits = grid * stride - padding + reach, torch.ones(len(grid), dtype=torch.bool)
        else:
            scaled = grid + padding - reach
            at, fits = scaled.div(stride, rounding_mode="floor"), (scaled % stride == 0).all(1)
        inside = fits & (at >= 0).all(1) & (at < limits).all(1)
        source = inside.nonzero()[:, 0]
        found.append(Taps(source, flatten(at[source], out), torch.full_like(source, number)))
    whole = Taps(*(torch.cat(parts) for parts in zip(*found, strict=True)))
    order = whole.source.argsort(stable=True)
    return Taps(*(part[order] for part in whole))


def flatten(points: Tensor, sizes: Shape) -> Tensor:
    """Flat numbers of points (n, dimensions)."""
    number = torch.zeros(len(points), dtype=torch.long)
    for dim, size in enumerate(sizes):
        number = number * size + points[:, dim]
    return number


def list_by(key: Tensor, num: int) -> Tensor:
    """Where the list of each of `num` keys starts; keys are sorted. One more for the end."""
    starts = torch.zeros(num + 1, dtype=torch.long)
    starts[1:] = torch.bincount(key, minlength=num).cumsum(0)
    return starts.int()


def count(shape: Shape) -> int:
    """Numbers in a shape."""
    return prod(shape)
