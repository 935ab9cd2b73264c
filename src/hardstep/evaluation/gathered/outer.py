"""One changed unit behind products: a sum of outer products, whose factors are kept.

    value = scale · (base + delta · factor + …) + shift

All parts are broadcast with each other; `delta` has a number for every row, `factor` a row for every
candidate. A product with unchanged weights turns one such value into another: only its factors are
multiplied. So does a norm, for which scale is what it divides rows by. What a value is made of is
put together where an operation needs its numbers, in a pass or by `build`.
"""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

Term = tuple[Tensor, Tensor]  # delta (lead, …, 1) and factor (lead, 1, …, units)


@dataclass(frozen=True, eq=False)
class Outer:
    """See above.

    Args:
        base: What is the same for all candidates, or not.
        terms: What is added to it.
        scale: Of every row.
        shift: Of every unit.
        key: What the base is known by where all candidates share it: its product with a weight is
            then computed once a step. The empty one stands for a recorded value.
    """

    base: Tensor
    terms: tuple[Term, ...]
    scale: Tensor | None = None
    shift: Tensor | None = None
    key: Hashable = ()

    @property
    def parts(self) -> dict[str, Tensor]:
        """All tensors, by name."""
        found = {"base": self.base}
        for number, (delta, factor) in enumerate(self.terms):
            found[f"delta{number}"], found[f"factor{number}"] = delta, factor
        if self.scale is not None:
            found["scale"] = self.scale
        if self.shift is not None:
            found["shift"] = self.shift
        return found

    @property
    def form(self) -> tuple[str, ...]:
        """The parts that there are."""
        return tuple(self.parts)

    def build(self) -> Tensor:
        """The whole value."""
        total = self.base
        for delta, factor in self.terms:
            total = torch.addcmul(total, delta, factor)
        if self.scale is not None:
            total = total * self.scale
        return total if self.shift is None else total + self.shift

    def reshape(self, old: Sequence[int], new: Sequence[int]) -> "Outer":
        """The same numbers, examples of a shape as examples of another with the same rows."""

        def view(part: Tensor) -> Tensor:
            full = part.reshape([1] * (2 + len(old) - part.dim()) + list(part.shape))
            rows = new[:-1] if full.shape[2:-1].numel() > 1 else [1] * (len(new) - 1)
            if full.shape[2:-1].numel() not in (1, torch.Size(old[:-1]).numel()):
                full = full.expand(*full.shape[:2], *old[:-1], full.shape[-1])
            return full.reshape(*full.shape[:2], *rows, full.shape[-1])

        return self._each(view)

    def _each(self, change: Callable[[Tensor], Tensor]) -> "Outer":
        terms = tuple((change(delta), change(factor)) for delta, factor in self.terms)
        return replace(
            self,
            base=change(self.base),
            terms=terms,
            scale=None if self.scale is None else change(self.scale),
            shift=None if self.shift is None else change(self.shift),
        )

    def multiply(self, base: Tensor, weight: Tensor, bias: Tensor | None, key: Hashable) -> "Outer":
        """The product with a weight, given that of its base."""
        terms = tuple((delta, factor @ weight) for delta, factor in self.terms)
        shift = None
        if self.scale is not None:
            shift = weight.new_zeros(weight.shape[1]) if self.shift is None else self.shift @ weight
            shift = shift if bias is None else shift + bias
        return Outer(base, terms, self.scale, shift, key)
