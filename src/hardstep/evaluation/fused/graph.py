"""Making expressions: kinds, axes and stages follow from the arguments.

What is the same operation on the same arguments is one expression, which a kernel computes once.
"""

from collections.abc import Iterator, Sequence

from hardstep.evaluation.fused.expressions import (
    COMPARISONS,
    Access,
    Apply,
    Cast,
    Concat,
    Constant,
    Expr,
    Fn,
    IsUnit,
    Kind,
    Linear,
    Lookup,
    Move,
    Number,
    Pick,
    Product,
    Read,
    Reduce,
    Reduction,
    Select,
    Spread,
    Stretch,
    Unfusable,
    Unit,
)


class Graph:
    """The expressions of a kernel, each after its arguments."""

    def __init__(self) -> None:
        self.known: dict[tuple[object, ...], Expr] = {}

    def __len__(self) -> int:
        return len(self.known)

    def __iter__(self) -> Iterator[Expr]:
        return iter(self.known.values())

    def constant(self, value: Number, kind: Kind) -> Expr:
        """A number of the given kind."""
        convert = float if kind.is_float else bool if kind is Kind.I1 else int
        value = convert(value)
        key = (kind, repr(value))  # the sign of zero is part of a constant's identity
        return self.known.get(key) or self._keep(key, Constant(kind, None, 0, (), value))

    def read(self, access: Access, kind: Kind, table: int, domain: int | None = None) -> Expr:
        """A number of a table."""
        key = (access, kind, table, domain)
        return self.known.get(key) or self._keep(key, Read(kind, domain, 0, (), access, table))

    def unit(self) -> Expr:
        """The unit that the candidate changes."""
        return self._keep((Unit,), Unit(Kind.I64, None, 0, ()))

    def is_unit(self, units: Stretch) -> Expr:
        """Whether the candidate changes the unit that stands at j."""
        return self._keep((IsUnit, units), IsUnit(Kind.I1, units.size, 0, (), units))

    def linear(self, kind: Kind, move: Move, shift: int, places: int) -> Expr:
        """A new column."""
        key = (Linear, kind, move, shift, places)
        return self._keep(key, Linear(kind, None, 0, (), move, shift, places))

    def spread(self, kind: Kind, move: Move, particles: int, size: int) -> Expr:
        """A new layer."""
        key = (Spread, kind, move, particles, size)
        return self._keep(key, Spread(kind, size, 0, (), move, particles, size, 0, 1))

    def spread_part(self, whole: Spread, start: int, size: int, step: int) -> Expr:
        """Some units of a new layer."""
        start, step = whole.start + whole.step * start, whole.step * step
        fields = (whole.move, whole.particles, whole.size, start, step)
        part = Spread(whole.kind, size, 0, (), *fields)
        return self._keep((Spread, whole.kind, size, *fields), part)

    def apply(self, function: Fn, *args: Expr) -> Expr:
        """A function of single numbers; lanes broadcast along j."""
        key = (function, *map(id, args))
        known = self.known.get(key)
        if known is not None:
            return known
        shorter = self._choose_instead(function, args)
        if shorter is not None:
            return self._keep(key, shorter)
        kind = Kind.I1 if function in COMPARISONS else args[0].kind
        stage = max([arg.stage for arg in args])
        return self._keep(key, Apply(kind, _join(function.value, args), stage, args, function))

    def _choose_instead(self, function: Fn, args: tuple[Expr, ...]) -> Expr | None:
        """The same numbers with a choice late in the chain, so that less waits for a threshold.

        A spiking neuron's reset is m · (1 − s): 1 − s is a choice between 0 and 1, the product one
        between m · 0 and m.
        """
        if len(args) != 2 or not args[0].kind.is_float:
            return None
        first, second = args
        if function is Fn.SUB and _is_number(first, 1) and isinstance(second, Cast):
            (truth,) = second.args
            if truth.kind is Kind.I1:
                none, one = (self.constant(number, first.kind) for number in (0, 1))
                return self.select(truth, none, one)
        if function is Fn.MUL and isinstance(second, Select):
            condition, none, one = second.args
            if _is_number(none, 0) and _is_number(one, 1):
                return self.select(condition, self.apply(Fn.MUL, first, none), first)
        return None

    def select(self, condition: Expr, value: Expr, other: Expr) -> Expr:
        """Where the condition holds the value, else the other."""
        args = (condition, value, other)
        stage = max([arg.stage for arg in args])
        selected = Select(other.kind, _join("select", args), stage, args)
        return self._keep((Select, *map(id, args)), selected)

    def cast(self, value: Expr, kind: Kind) -> Expr:
        """The value in another kind."""
        if value.kind is kind:
            return value
        if isinstance(value, Constant):
            return self.constant(value.value, kind)
        key = (Cast, kind, id(value))
        return self._keep(key, Cast(kind, value.domain, value.stage, (value,)))

    def reduce(self, reduction: Reduction, value: Expr) -> Expr:
        """All values along j."""
        if value.domain is None:
            raise Unfusable(f"{reduction.value} over an axis that is not there")
        place = reduction in (Reduction.ARGMAX, Reduction.ARGMIN)
        kind = Kind.I64 if place else value.kind
        reduced = Reduce(kind, None, value.stage + 1, (value,), reduction)
        return self._keep((reduction, id(value)), reduced)

    def pick(self, value: Expr, index: Expr) -> Expr:
        """value[j = index], per lane."""
        picked = Pick(value.kind, None, max(value.stage, index.stage) + 1, (value, index))
        return self._keep((Pick, id(value), id(index)), picked)

    def lookup(self, index: Expr, kind: Kind, size: int, table: int) -> Expr:
        """table[index, j]."""
        key = (Lookup, id(index), kind, size, table)
        return self._keep(key, Lookup(kind, size, index.stage, (index,), table))

    def product(
        self, change: Expr, units: Stretch, weight: int, base: int, at_unit: Expr | None = None
    ) -> Expr:
        """Base + change · weight over the axis of `change`, and what is added at one unit."""
        args = (change,) if at_unit is None else (change, at_unit)
        stage = max(change.stage + 1, args[-1].stage)
        key = (Product, *map(id, args), units, weight, base)
        return self._keep(key, Product(change.kind, units.size, stage, args, weight, base, units))

    def concat(self, parts: Sequence[Expr]) -> Expr:
        """Values along several axes as one along all of them."""
        if any(part.domain is None for part in parts):
            raise Unfusable("cat of a value that does not vary along its axis")
        size, stage = sum(part.domain or 1 for part in parts), max(part.stage for part in parts)
        key = (Concat, *map(id, parts))
        return self._keep(key, Concat(parts[0].kind, size, stage + 1, tuple(parts)))

    def _keep(self, key: tuple[object, ...], expr: Expr) -> Expr:
        """The expression that was made first under a key: what it is, and what of."""
        return self.known.setdefault(key, expr)


def _is_number(expr: Expr, number: Number) -> bool:
    """Whether it is this constant; the two zeros are different ones."""
    return isinstance(expr, Constant) and repr(float(expr.value)) == repr(float(number))


def _join(name: str, args: tuple[Expr, ...]) -> int | None:
    """The axis that arguments share; those without one are the same all along it."""
    domains = {arg.domain for arg in args if arg.domain is not None}
    if len(domains) > 1:
        raise Unfusable(f"{name} mixes axes of sizes {sorted(domains)}")
    return next(iter(domains), None)
