"""Which expression is computed where: stages, loops over axes, room for what outlives a loop.

Also where it need not be computed (values that only count under a condition), and how much work
that is per candidate.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from hardstep.evaluation.fused.expressions import (
    Access,
    Expr,
    IsUnit,
    Linear,
    Looped,
    Moved,
    Product,
    Read,
    Select,
    Unit,
)
from hardstep.evaluation.fused.translate import Program


@dataclass(eq=False)
class Loop:
    """A loop over an axis: values, reductions and lists of changes for products."""

    domain: int
    exprs: list[Expr] = field(default_factory=list)


@dataclass(frozen=True)
class ChangeList:
    """Scratch offsets of a product's list: vectors that differ, and the indices they stand at."""

    vectors: int
    indices: int


class Schedule:
    """The order of a program's work for one vector of examples and one candidate."""

    def __init__(self, program: Program, lanes: int) -> None:
        self.lanes = lanes
        self.needed = find_needed(program)
        self.guards = _find_guards(self.needed, [end.difference for end in program.closings])
        self.per_lane: dict[int, list[Expr]] = defaultdict(list)
        self.loops: dict[int, dict[int, Loop]] = defaultdict(dict)  # by stage and domain
        self.products: dict[int, list[Product]] = defaultdict(list)
        self.private: dict[int, Loop] = {}  # of a guarded product: run only with it
        self.loop_of: dict[int, Loop] = {}
        self.scratch = 0
        self.places: dict[int, int] = {}  # scratch offsets of values that outlive their loop
        self.changes: dict[int, ChangeList] = {}
        self._find_private()
        for expr in self.needed:
            self._place(expr)
        self._find_room()
        self.num_stages = 1 + max(expr.stage for expr in self.needed)

    def _find_private(self) -> None:
        """What only a guarded product needs is computed under its guard."""
        consumers = _find_consumers(self.needed)
        order = {id(expr): n for n, expr in enumerate(self.needed)}
        for product in self.needed:
            if not isinstance(product, Product) or id(product) not in self.guards:
                continue
            change = product.args[0]
            assert change.domain is not None
            own = {id(product)}
            members = [e for e in reachable([change]) if e.domain == change.domain]
            for expr in reversed(members):
                inner = not expr.is_leaf and not isinstance(expr, Looped)
                if inner and all(id(consumer) in own for consumer in consumers[id(expr)]):
                    own.add(id(expr))
            if id(change) in own:
                exprs = [e for e in members if id(e) in own] + [product]
                loop = Loop(change.domain, sorted(exprs, key=lambda e: order[id(e)]))
                self.private[id(product)] = loop
                self.loop_of.update((id(expr), loop) for expr in exprs)

    def _place(self, expr: Expr) -> None:
        if isinstance(expr, Product):
            self.products[expr.stage].append(expr)
        elif expr.domain is None and not isinstance(expr, Looped):
            self.per_lane[expr.stage].append(expr)
            return
        if expr.is_leaf or id(expr) in self.loop_of:
            return
        looped = expr.args[0] if isinstance(expr, Looped) else expr
        assert looped.domain is not None
        stage = expr.stage - (looped is not expr)
        loop = self.loops[stage].setdefault(looped.domain, Loop(looped.domain))
        loop.exprs.append(expr)
        self.loop_of[id(expr)] = loop

    def _find_room(self) -> None:
        for expr in self.needed:
            if isinstance(expr, Product):
                domain = expr.args[0].domain
                assert domain is not None
                vectors = self.reserve(domain * self.lanes * expr.kind.num_bytes)
                self.changes[id(expr)] = ChangeList(vectors, self.reserve(domain * 8))
                self._keep(expr)
            loop = self.loop_of.get(id(expr))
            for arg in expr.args:
                outlives = arg.domain is not None and self.loop_of.get(id(arg)) is not loop
                if outlives and not arg.is_leaf:
                    self._keep(arg)

    def _keep(self, expr: Expr) -> None:
        if id(expr) not in self.places:
            size = (expr.domain or 1) * self.lanes * expr.kind.num_bytes
            self.places[id(expr)] = self.reserve(size)

    def reserve(self, size: int) -> int:
        """An offset in scratch memory with that many bytes of room."""
        place = self.scratch
        self.scratch += -(-size // 64) * 64
        return place


def find_needed(program: Program) -> list[Expr]:
    """Every expression of which the program's sums need the value."""
    return reachable([*(closing.difference for closing in program.closings), *program.exits])


def _list_arguments(expr: Expr) -> tuple[Expr, ...]:
    return expr.args


def reachable(
    roots: Iterable[Expr], arguments: Callable[[Expr], tuple[Expr, ...]] = _list_arguments
) -> list[Expr]:
    """Everything the roots need, arguments before those that use them."""
    found: dict[int, Expr] = {}
    stack = [(root, False) for root in roots]
    while stack:
        expr, ready = stack.pop()
        if id(expr) in found:
            continue
        if ready:
            found[id(expr)] = expr
        else:
            stack.append((expr, True))
            stack.extend((arg, False) for arg in reversed(arguments(expr)))
    return list(found.values())


# -- which lanes matter ----------------------------------------------------------------------


def is_column(expr: Expr) -> bool:
    """Whether it is the column that a candidate changes."""
    if isinstance(expr, Read):
        return expr.access is Access.CANDIDATE_LANE
    return isinstance(expr, Linear)


def _is_source(expr: Expr) -> bool:
    """Whether a candidate's change enters here."""
    if isinstance(expr, Read):
        return expr.access in (Access.CANDIDATE_LANE, Access.CANDIDATE_AXIS)
    return isinstance(expr, Moved)


def _find_consumers(needed: list[Expr]) -> dict[int, list[Expr]]:
    """The expressions that use an expression, by its id."""
    found: dict[int, list[Expr]] = defaultdict(list)
    for expr in needed:
        for arg in dict.fromkeys(expr.args):
            found[id(arg)].append(expr)
    return found


def _only_under(expr: Expr, consumer: Expr) -> Expr | None:
    """The condition under which a consumer looks at an argument."""
    if not isinstance(consumer, Select):
        return None
    condition, value, other = consumer.args
    return condition if value is expr and expr not in (condition, other) else None


def _find_guards(needed: list[Expr], roots: list[Expr]) -> dict[int, Expr]:
    """Conditions per lane outside which a product's result is never looked at."""
    consumers = _find_consumers(needed)
    found = {}
    for expr in needed:
        if not isinstance(expr, Product) or expr in roots:
            continue
        conditions = [_only_under(expr, consumer) for consumer in consumers[id(expr)]]
        first = conditions[0] if conditions else None
        if first is None or any(condition is not first for condition in conditions):
            continue
        if first.domain is None and first.stage <= expr.stage:
            found[id(expr)] = first
    return found


def find_conditions(needed: list[Expr], program: Program) -> list[Expr]:
    """Conditions, the same for all candidates, that every path from the sources must pass."""
    changed = _find_changed(needed)
    need: dict[int, frozenset[int]] = {}
    conditions: dict[int, Expr] = {}
    consumers = _find_consumers(needed)
    roots = {id(closing.difference) for closing in program.closings}
    exits = {id(expr) for expr in program.exits}
    for expr in reversed(needed):
        ways = [frozenset[int]()] if id(expr) in roots else []
        for consumer in consumers[id(expr)]:
            if id(consumer) in exits:
                continue  # only asks whether something changed
            way = need[id(consumer)]
            condition = _only_under(expr, consumer)
            fixed = condition is not None and id(condition) not in changed
            if condition is not None and fixed and condition.domain is None and not condition.stage:
                conditions[id(condition)] = condition
                way = way | {id(condition)}
            ways.append(way)
        need[id(expr)] = frozenset.intersection(*ways) if ways else frozenset(conditions)
    sources = [need[id(expr)] for expr in needed if _is_source(expr)]
    common = frozenset.intersection(*sources) if sources else frozenset()
    return [condition for number, condition in conditions.items() if number in common]


def _find_changed(needed: list[Expr]) -> set[int]:
    """Expressions that depend on the candidate."""
    found: set[int] = set()
    for expr in needed:
        own = expr.is_leaf and (_is_source(expr) or isinstance(expr, Unit | IsUnit))
        if own or any(id(arg) in found for arg in expr.args):
            found.add(id(expr))
    return found


# -- what a candidate costs, at most: examples in which nothing differs are skipped ----------

_PER_EXAMPLE = (Access.LANE, Access.UNIT_LANE, Access.AXIS_LANE, Access.CANDIDATE_LANE)


def count_operations(program: Program) -> int:
    """Additions, multiplications, comparisons and so on, if every example differs."""
    total = 0
    for expr in find_needed(program):
        if isinstance(expr, Product):
            total += 2 * (expr.args[0].domain or 1) * (expr.domain or 1)
        elif isinstance(expr, Moved):
            total += 2 * expr.move.dim * (expr.domain or 1)
        elif not expr.is_leaf:
            domain = expr.args[0].domain if isinstance(expr, Looped) else expr.domain
            total += domain or 1
    return total * program.num_examples


def count_bytes(program: Program) -> int:
    """Bytes read from tables of base values and of candidates, if every example differs."""
    total = 0
    for expr in find_needed(program):
        lines = 0
        if isinstance(expr, Moved):
            lines = 1 + expr.move.dim
        elif isinstance(expr, Read) and expr.access in _PER_EXAMPLE:
            lines = 1
        total += lines * expr.kind.num_bytes * (expr.domain or 1)
    return total * program.num_examples
