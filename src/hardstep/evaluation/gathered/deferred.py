"""A product with weights that all share, left undone where little of it is read.

    value = rows · weight + bias, with its dimensions in any order

Attention of few queries needs neither keys nor values: q·Kᵀ = (q·Wᵀ)·xᵀ, and A·V = (A·x)·W. So
views, parts and scales of such a value only change its factors, until attention uses them or an
operation needs the numbers.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import prod

import torch
from torch import Tensor


@dataclass(frozen=True, eq=False)
class Deferred:
    """See above.

    Args:
        rows: Values of examples, (lead, *row dimensions, inner).
        weight: (inner, *unit dimensions).
        bias: (*unit dimensions), if there is one.
        order: For every dimension of an example of the value, which it is of the row dimensions
            followed by the unit dimensions.
    """

    rows: Tensor
    weight: Tensor
    bias: Tensor | None
    order: tuple[int, ...]

    @property
    def nbytes(self) -> int:
        """Of what candidates do not share."""
        return self.rows.nbytes

    @property
    def num_rows(self) -> int:
        """How many of the dimensions are row dimensions."""
        return self.rows.dim() - 3

    @property
    def shape(self) -> list[int]:
        """The shape of an example of the value."""
        sizes = [*self.rows.shape[2:-1], *self.weight.shape[1:]]
        return [sizes[number] for number in self.order]

    def build(self) -> Tensor:
        """The whole value."""
        inner = len(self.weight)
        flat, weight = self.rows.reshape(-1, inner), self.weight.reshape(inner, -1)
        if self.bias is None:
            result = flat @ weight
        else:
            result = torch.addmm(self.bias.reshape(-1), flat, weight)
        result = result.reshape(*self.rows.shape[:-1], *self.weight.shape[1:])
        return result.permute(0, 1, *[2 + number for number in self.order])

    def narrow(self, dim: int, start: int, length: int) -> "Deferred":
        """A stretch of a dimension."""
        number = self.order[dim]
        if number < self.num_rows:
            return replace(self, rows=self.rows.narrow(2 + number, start, length))
        unit = number - self.num_rows
        return self._change(lambda part, first: part.narrow(first + unit, start, length))

    def permute(self, dims: Sequence[int]) -> "Deferred":
        """The dimensions of examples in another order."""
        return replace(self, order=tuple(self.order[dim] for dim in dims))

    def drop(self, dim: int) -> "Deferred":
        """The same without a dimension of size 1."""
        number = self.order[dim]
        order = tuple(own - (own > number) for own in self.order if own != number)
        if number < self.num_rows:
            return replace(self, rows=self.rows.squeeze(2 + number), order=order)
        unit = number - self.num_rows
        return replace(self._change(lambda part, first: part.squeeze(first + unit)), order=order)

    def scale(self, function: Callable[[Tensor], Tensor]) -> "Deferred":
        """The value multiplied by the same number everywhere."""
        return self._change(lambda part, _: function(part))

    def add(self, vector: Tensor) -> "Deferred | None":
        """The value with a number added to every unit; if these are its last dimension."""
        if self.weight.dim() != 2 or self.order[-1] != self.num_rows:
            return None
        return replace(self, bias=vector if self.bias is None else self.bias + vector)

    def reshape(self, new: Sequence[int]) -> "Deferred | None":
        """The same numbers, examples of another shape; may need them all."""
        bare = self._drop_ones()
        old, wanted = bare.shape, [size for size in new if size > 1]
        parts: list[tuple[list[int], list[int]]] = []  # old dimensions and what becomes of them
        while old:
            taken, made = [old.pop(0)], [wanted.pop(0)]
            while prod(taken) != prod(made):
                if prod(taken) < prod(made):
                    taken.append(old.pop(0))
                else:
                    made.append(wanted.pop(0))
            done = sum(len(own) for own, _ in parts)
            parts.append((list(bare.order[done : done + len(taken)]), made))
        split = bare._regroup(parts)
        return None if split is None else split._insert_ones(new)

    # -- how -----------------------------------------------------------------------------------

    def _change(self, change: Callable[[Tensor, int], Tensor]) -> "Deferred":
        """The same with weight and bias changed; the function hears where units begin."""
        bias = None if self.bias is None else change(self.bias, 0)
        return replace(self, weight=change(self.weight, 1), bias=bias)

    def _drop_ones(self) -> "Deferred":
        """The same without dimensions of size 1."""
        kept = [number for number, size in zip(self.order, self.shape, strict=True) if size > 1]
        rows, units = self.rows.shape[2:-1], self.weight.shape[1:]
        left = [size for size in units if size > 1]
        return Deferred(
            self.rows.reshape(*self.rows.shape[:2], *[s for s in rows if s > 1], len(self.weight)),
            self.weight.reshape(len(self.weight), *left),
            None if self.bias is None else self.bias.reshape(left),
            tuple(sorted(kept).index(number) for number in kept),
        )

    def _regroup(self, parts: list[tuple[list[int], list[int]]]) -> "Deferred | None":
        """Dimensions cut into others or merged, if they are merged as they lie in memory."""
        for own, _ in parts:
            alike = len({number < self.num_rows for number in own}) == 1
            if not alike or own != list(range(own[0], own[0] + len(own))):
                return None
        rows: list[int] = []
        units: list[int] = []
        starts: dict[int, int] = {}
        for own, made in sorted(parts):
            starts[own[0]] = len(rows) + len(units)
            (rows if own[0] < self.num_rows else units).extend(made)
        order = [starts[own[0]] + place for own, made in parts for place in range(len(made))]
        return Deferred(
            self.rows.reshape(*self.rows.shape[:2], *rows, len(self.weight)),
            self.weight.reshape(len(self.weight), *units),
            None if self.bias is None else self.bias.reshape(units),
            tuple(order),
        )

    def _insert_ones(self, new: Sequence[int]) -> "Deferred":
        """The same with dimensions of size 1, as rows behind all others, where a shape has them."""
        num, ones = self.num_rows, sum(size == 1 for size in new)
        shape = [*self.rows.shape[:-1], *[1] * ones, len(self.weight)]
        kept = iter([number + ones * (number >= num) for number in self.order])
        added = iter(range(num, num + ones))
        order = tuple(next(added) if size == 1 else next(kept) for size in new)
        return replace(self, rows=self.rows.reshape(shape), order=order)


def count_deferred(shape: Sequence[int], inner: int, other: Sequence[int]) -> int:
    """Multiply-adds of a product with a deferred value of a shape, without its numbers."""
    contracted = other[-1] if other[-1] in shape[-2:] else 1
    return prod(other) // contracted * inner * sum(shape[-2:])


def multiply_deferred(other: Tensor, own: Deferred) -> Tensor | None:
    """Matrices of examples times those of a deferred value, if that can be done without them.

    Args:
        other: (lead, *heads, rows, inner dimension of the product); few rows.
        own: The other factor.
    """
    last = own.shape[-1]
    own = own if 1 in own.shape[-2:] else own._drop_ones()
    heads = own.order[:-2]
    if own.num_rows != 1 or 0 not in own.order[-2:] or len(heads) > 1:
        return None
    units = [number - 1 for number in (*heads, max(own.order[-2:]))]
    weight = own.weight.permute(0, *[1 + unit for unit in units])
    weight = weight.reshape(len(weight), -1, weight.shape[-1]).transpose(0, 1)  # by head
    bias = None if own.bias is None else own.bias.permute(units).reshape(weight.shape[0], -1)
    apart = other.reshape(*other.shape[:2], weight.shape[0], *other.shape[-2:])
    result: Tensor
    if own.order[-1] == 0:
        met = _multiply_heads(apart, weight.transpose(1, 2))
        result = _multiply_all(met, own.rows.transpose(2, 3))
        if bias is not None:
            result = result + (apart * bias.unsqueeze(1)).sum(dim=-1, keepdim=True)
    else:
        result = _multiply_heads(_multiply_all(apart, own.rows), weight)
        if bias is not None:
            result = result + apart.sum(dim=-1, keepdim=True) * bias.unsqueeze(1)
    return result.reshape(*result.shape[:2], *other.shape[2:-1], last)


def _multiply_heads(values: Tensor, weight: Tensor) -> Tensor:
    """(lead, heads, rows, inner) times (heads, inner, units), one product for each head."""
    front = values.movedim(2, 0)
    flat = torch.bmm(front.reshape(len(front), -1, front.shape[-1]), weight)
    return flat.reshape(*front.shape[:-1], -1).movedim(0, 2)


def _multiply_all(values: Tensor, rows: Tensor) -> Tensor:
    """(lead, heads, rows, inner) times (lead, inner, units), which all heads share."""
    result = torch.matmul(values.flatten(2, 3), rows)
    return result.reshape(*result.shape[:2], *values.shape[2:4], result.shape[-1])
