"""Where numbers go: targets of convolutions, of windows and of sums, as lists for kernels."""

from collections.abc import Callable
from itertools import product
from math import prod
from typing import NamedTuple

import torch
from torch import Tensor

from hardstep.evaluation.trace.record import Node

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


def find_geometry(node: Node, dims: int) -> Geometry:
    """The windows of a pooling node."""

    def per_dim(place: int, default: Shape) -> Shape:
        given = node.args[place] if len(node.args) > place else ()
        return tuple(given if len(given) == dims else list(given) * dims) or default

    window = per_dim(1, ())
    ones = (1,) * dims
    return Geometry(window, per_dim(2, window), per_dim(3, (0,) * dims), per_dim(4, ones))


def find_windows(node: Node, pixels: Shape, out: Shape) -> Taps:
    """Which pixels the windows of a maximum hold."""
    if node.name.startswith("adaptive"):
        return _find_adaptive_taps(pixels, out)
    return find_taps(pixels, out, find_geometry(node, len(out)))


def _find_adaptive_taps(pixels: Shape, out: Shape) -> Taps:
    """Windows that share the pixels out among a given number of them; they may overlap."""
    sides = []  # offset in the window, pixel and window, along each dimension
    for size, num in zip(pixels, out, strict=True):
        bounds = [(window * size // num, -(-(window + 1) * size // num)) for window in range(num)]
        pairs = [(at - a, at, n) for n, (a, b) in enumerate(bounds) for at in range(a, b)]
        sides.append(torch.tensor(pairs))
    chosen = torch.cartesian_prod(*[torch.arange(len(side)) for side in sides])
    points = torch.stack([side[at] for side, at in zip(sides, chosen.T, strict=True)], dim=1)
    offset, source, target = points.unbind(2)
    taps = Taps(flatten(source, pixels), flatten(target, out), flatten(offset, pixels))
    order = taps.source.argsort(stable=True)
    return Taps(*(part[order] for part in taps))


MAXIMA = {
    "max_pool2d_with_indices": 2,
    "max_pool3d_with_indices": 3,
    "adaptive_max_pool2d": 2,
    "adaptive_max_pool3d": 3,
}  # and how many dimensions their windows have


def find_sides(node: Node, base: Callable[[int], Tensor]) -> Shape | None:
    """The sides of a maximum's windows that stand side by side, or nothing."""
    dims = MAXIMA.get(node.name, 0)
    if not dims or base(node.inputs[0]).dim() != dims + 2:
        return None
    if node.name.startswith("adaptive"):
        sizes = base(node.inputs[0]).shape[2:], base(node.outputs[0]).shape[2:]
        pairs = list(zip(*sizes, strict=True))
        plain = all(size % num == 0 for size, num in pairs)
        return tuple(size // num for size, num in pairs) if plain else None
    shape = find_geometry(node, dims)
    plain = shape.stride == shape.kernel and not any(shape.padding) and set(shape.dilation) == {1}
    return shape.kernel if plain else None
