"""One changed unit behind products: a sum of outer products, whose factors are kept.

    value = scale · (base + delta · factor + …) + shift

All parts are broadcast with each other; `delta` has a number for every row, `factor` a row for
every candidate. A product with unchanged weights turns one such value into another: only its
factors are multiplied. So does a norm, for which scale is what it divides rows by. What a value is
made of is put together where an operation needs its numbers, in a pass or by `build`.
"""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from functools import reduce

import torch
from torch import Size, Tensor


def pad(part: Tensor, ndim: int) -> Tensor:
    """A part with the two leading axes and so many dimensions of an example."""
    return part.reshape([1] * (2 + ndim - part.dim()) + list(part.shape))


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
            then computed once a step. The empty one stands for a recorded value. Without terms and
            scale, the base is a product to which a bias is still to be added.
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
    def nbytes(self) -> int:
        """Of what candidates do not share."""
        return sum(part.nbytes for name, part in self.parts.items() if name != "base")

    @property
    def is_recorded(self) -> bool:
        """Whether it is a recorded value, to which terms are added."""
        return self.scale is None and self.key == ()

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

    def reshape(self, old: Sequence[int], new: Sequence[int]) -> "Outer | None":
        """The same numbers, examples of a shape as examples of another; may need them all."""
        if list(old) == list(new):
            return self
        if [size for size in old if size > 1] == [size for size in new if size > 1]:
            return self.change(lambda part: _insert_ones(pad(part, len(old)), old, new))
        if list(new) == [*old[:-2], old[-2] * old[-1]]:
            return self._merge_heads(len(old))
        passed = {Size(new[:n]).numel(): n for n in range(len(new) + 1)}
        middle = passed.get(Size(old[:-1]).numel())
        if middle is None or not self._has_rows(len(old)):
            return None

        def view(part: Tensor) -> Tensor:
            full = pad(part, len(old))
            outer, inner = full.shape[2:-1], full.shape[-1]
            if outer.numel() not in (1, Size(old[:-1]).numel()):
                full = full.expand(*full.shape[:2], *old[:-1], inner)
                outer = full.shape[2:-1]
            rows = new[:middle] if outer.numel() > 1 else [1] * middle
            row = new[middle:] if inner > 1 else [1] * (len(new) - middle)
            return full.reshape(*full.shape[:2], *rows, *row)

        return self.change(view)

    def _merge_heads(self, ndim: int) -> "Outer | None":
        """The last two dimensions as one, if every candidate changes one head at most."""
        if self.scale is not None or self.shift is not None:
            return None
        terms: list[Term] = []
        for delta, factor in ((pad(d, ndim), pad(f, ndim)) for d, f in self.terms):
            size = max(delta.shape[-2], factor.shape[-2])
            here = (factor != 0).any(dim=-1, keepdim=True).expand(*factor.shape[:-2], size, 1)
            alone = bool((here.sum(dim=-2) <= 1).all()) and factor.shape[2:-2].numel() == 1
            if delta.shape[-1] != 1 or not alone:
                return None
            own = torch.where(here, delta, 0).sum(dim=-2)
            terms.append((own, factor.expand(*factor.shape[:-2], size, -1).flatten(-2)))
        return replace(self, base=pad(self.base, ndim).flatten(-2), terms=tuple(terms))

    def _has_rows(self, ndim: int) -> bool:
        """Whether every term is a number for each row, times a row."""
        terms = [(pad(delta, ndim), pad(factor, ndim)) for delta, factor in self.terms]
        return all(d.shape[-1] == 1 == f.shape[2:-1].numel() for d, f in terms)

    def find_rows(self, ndim: int, dim: int) -> Tensor:
        """(candidates, examples, indices): where terms may add something, along a dimension."""
        found = [
            reduce(torch.logical_and, [_is_somewhere(pad(one, ndim), dim) for one in term])
            for term in self.terms
        ]
        return reduce(torch.logical_or, found)

    def drop_terms(self) -> "Outer":
        """The same without terms that are 0 for all candidates."""
        terms = [t for t in self.terms if all(bool((part != 0).any()) for part in t)]
        return replace(self, terms=tuple(terms))

    def permute(self, dims: Sequence[int]) -> "Outer":
        """The same with the dimensions of examples in another order."""
        return self.change(lambda part: pad(part, len(dims)).permute(0, 1, *[d + 2 for d in dims]))

    def change(self, change: Callable[[Tensor], Tensor]) -> "Outer":
        """The same with all parts changed alike."""
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


def multiply_both(base: Tensor, left: Outer, right: Outer) -> Outer:
    """The product of matrices of one example, of which either may change, given the base's.

    (A + a·b) (B + c·d) = AB + a·(bB + (bc) d) + (Ac)·d
    """
    columns = [sort_factors(*term) for term in right.terms]
    terms: list[Term] = []
    for a, b in (sort_factors(*term) for term in left.terms):
        row = _by_row(b, right.base)
        for c, d in columns:
            row = row + (b @ c) * d
        terms.append((a, row))
    terms += [(_by_column(left.base, c), d) for c, d in columns]
    return Outer(base, tuple(terms))


def sort_factors(one: Tensor, other: Tensor) -> Term:
    """A column (…, rows, 1) and a row (…, 1, units), of which either may come first."""
    return (one, other) if one.shape[-1] == 1 == other.shape[-2] else (other, one)


def _by_row(row: Tensor, matrix: Tensor) -> Tensor:
    """Rows (n, examples, …, 1, k) times matrices (1, examples, …, k, m) of the base."""
    rows = row.squeeze(-2).movedim(0, -2)
    return (rows @ matrix[0]).movedim(-2, 0).unsqueeze(-2)


def _by_column(matrix: Tensor, column: Tensor) -> Tensor:
    """Matrices of the base times columns (n, examples, …, k, 1)."""
    columns = column.squeeze(-1).movedim(0, -1)
    return (matrix[0] @ columns).movedim(-1, 0).unsqueeze(-1)


def _is_somewhere(part: Tensor, dim: int) -> Tensor:
    """(n, examples, indices): whether anything is not 0, not-a-number included."""
    return (part != 0).movedim(2 + dim, 2).flatten(3).any(dim=3)


def _insert_ones(part: Tensor, old: Sequence[int], new: Sequence[int]) -> Tensor:
    """A part of examples of which only dimensions of size 1 come and go."""
    kept = iter([own for own, size in zip(part.shape[2:], old, strict=True) if size > 1])
    return part.reshape(*part.shape[:2], *[next(kept) if size > 1 else 1 for size in new])
