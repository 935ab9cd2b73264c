"""What a fused kernel computes, as a graph of expressions over lanes.

A kernel treats a few examples at once, one per lane. An expression has one value per lane, and,
if it has a domain, per index j of an axis of that size (a layer's units). Expressions with a
domain are computed in loops over j; reductions and products need a whole loop behind them, so
every expression has a stage: loops of one stage run before those of the next.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch

KINDS = {
    torch.float32: "f32",
    torch.float64: "f64",
    torch.bool: "i1",
    torch.int64: "i64",
}
FLOATS = ("f32", "f64")
REDUCTIONS = {"total", "amax", "amin", "argmax", "argmin", "pick"}


class Unfusable(Exception):
    """The fused path does not cover this; the message says what."""


@dataclass(frozen=True, eq=False, slots=True)
class Expr:
    """One operation; leaves have a table (or nothing) in place of arguments."""

    op: str
    args: tuple["Expr", ...]
    kind: str  # f32, f64, i1, i64
    domain: int | None  # size of the axis j runs over, or nothing for a value per lane
    stage: int
    data: Any = None  # constants, table numbers

    @property
    def is_leaf(self) -> bool:
        """Whether it reads a table or a constant."""
        return not self.args


class Graph:
    """Builds expressions; the same operation on the same arguments is the same expression."""

    def __init__(self) -> None:
        self.known: dict[tuple[Any, ...], Expr] = {}

    def __len__(self) -> int:
        return len(self.known)

    def __iter__(self) -> Iterator[Expr]:
        return iter(self.known.values())

    def leaf(self, op: str, kind: str, data: Any = None, domain: int | None = None) -> Expr:
        """A constant, a table read or a source."""
        return self._make(op, (), kind, domain, 0, data)

    def constant(self, value: float | int | bool, kind: str) -> Expr:
        """A number of the given kind."""
        # The sign of zero and the type are part of a constant's identity.
        return self.leaf("constant", kind, repr(_as_kind(value, kind)))

    def apply(self, op: str, *args: Expr, kind: str | None = None, data: Any = None) -> Expr:
        """An element-wise operation; lanes broadcast along j."""
        domains = {arg.domain for arg in args if arg.domain is not None}
        if len(domains) > 1:
            raise Unfusable(f"{op} mixes axes of sizes {sorted(domains)}")
        stage = max(arg.stage for arg in args)
        kind = args[0].kind if kind is None else kind
        return self._make(op, args, kind, next(iter(domains), None), stage, data)

    def cast(self, value: Expr, kind: str) -> Expr:
        """The value in another kind."""
        if value.kind == kind:
            return value
        if value.op == "constant":
            return self.constant(_parse(value.data), kind)
        return self.apply("cast", value, kind=kind)

    def reduce(self, op: str, value: Expr, kind: str | None = None) -> Expr:
        """Over j: `total`, `amax`, `amin`, `argmax`, `argmin`; known once the loop is through."""
        if value.domain is None:
            raise Unfusable(f"{op} over an axis that is not there")
        kind = value.kind if kind is None else kind
        return self._make(op, (value,), kind, None, value.stage + 1, "reduce")

    def pick(self, value: Expr, index: Expr) -> Expr:
        """value[j = index], per lane."""
        stage = max(value.stage, index.stage) + 1
        return self._make("pick", (value, index), value.kind, None, stage, "reduce")

    def lookup(self, index: Expr, kind: str, size: int, table: int) -> Expr:
        """table[index, j]."""
        return self._make("lookup", (index,), kind, size, index.stage, table)

    def product(self, change: Expr, num: int, weight: int, base: int) -> Expr:
        """Base + change · weight over the axis of `change`, an axis of size `num`."""
        return self._make("product", (change,), change.kind, num, change.stage + 1, (weight, base))

    def _make(
        self, op: str, args: tuple[Expr, ...], kind: str, domain: int | None, stage: int, data: Any
    ) -> Expr:
        key = (op, *map(id, args), kind, domain, data)
        if key not in self.known:
            self.known[key] = Expr(op, args, kind, domain, stage, data)
        return self.known[key]


def _as_kind(value: float | int | bool, kind: str) -> float | int | bool:
    if kind == "i1":
        return bool(value)
    return int(value) if kind == "i64" else float(value)


def _parse(text: str) -> float | int | bool:
    return {"True": True, "False": False}[text] if text in ("True", "False") else float(text)
