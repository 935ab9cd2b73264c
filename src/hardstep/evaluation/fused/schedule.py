"""Which expression is computed where: stages, loops over axes, room for what outlives a loop.

Also where it need not be computed (values that only count under a condition), and how much work
that is per candidate.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from hardstep.evaluation.fused.expressions import (
    Access,
    Concat,
    Expr,
    IsUnit,
    Linear,
    Looped,
    Moved,
    Product,
    Read,
    Reduced,
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


@dataclass(frozen=True)
class _Room:
    """Scratch memory from one stage to another: of a value, or of what several products read."""

    begin: int
    end: int
    size: int
    holds: Expr | list[Product]


class Schedule:
    """The order of a program's work for one vector of examples and one candidate."""

    def __init__(self, program: Program, lanes: int) -> None:
        self.lanes = lanes
        self.needed = find_needed(program)
        self.guards = _find_guards(self.needed, [end.difference for end in program.closings])
        self.per_lane: dict[int, list[Expr]] = defaultdict(list)
        self.loops: dict[int, dict[int, Loop]] = defaultdict(dict)  # by stage and domain
        # What is made at once, before the loops of its stage.
        self.products: dict[int, list[Product | Concat]] = defaultdict(list)
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
        self.num_loops = sum(map(len, self.loops.values())) + len(self.private)

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
                inner = not expr.is_leaf and not isinstance(expr, Looped | Concat)
                if inner and all(id(consumer) in own for consumer in consumers[id(expr)]):
                    own.add(id(expr))
            if id(change) in own:
                exprs = [e for e in members if id(e) in own] + [product]
                loop = Loop(change.domain, sorted(exprs, key=lambda e: order[id(e)]))
                self.private[id(product)] = loop
                self.loop_of.update((id(expr), loop) for expr in exprs)

    def _place(self, expr: Expr) -> None:
        if isinstance(expr, Product | Concat):
            self.products[expr.stage].append(expr)
            if isinstance(expr, Concat):
                return
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
        """Room for what outlives its loop, until it was last read."""
        moments = self._find_moments()
        ends: dict[int, int] = {}  # when kept values are last read
        lists: dict[tuple[int, int], list[Product]] = defaultdict(list)  # products of one change
        for expr in self.needed:
            if isinstance(expr, Product):
                lists[id(expr.args[0]), id(self.loop_of[id(expr)])].append(expr)
            if isinstance(expr, Product | Concat):
                ends.setdefault(id(expr), moments[id(expr)])
            loop = self.loop_of.get(id(expr))
            for arg in expr.args:
                outlives = arg.domain is not None and self.loop_of.get(id(arg)) is not loop
                if (outlives and not arg.is_leaf) or isinstance(arg, Product | Concat):
                    ends[id(arg)] = max(ends.get(id(arg), 0), moments[id(expr)])
        rooms = [
            _Room(moments[id(expr)], ends[id(expr)], self._measure(expr), expr)
            for expr in self.needed
            if id(expr) in ends
        ]
        for products in lists.values():
            first, last = products[0], max(moments[id(one)] for one in products)
            change = first.args[0]
            begin = min(moments[id(one)] for one in products) - 1
            size = self._measure(change) + -(-8 * (change.domain or 1) // 64) * 64
            rooms.append(_Room(begin, last, size, products))
        self._assign(rooms)

    def _find_moments(self) -> dict[int, int]:
        """The stage in which every expression is computed."""
        moments = {id(expr): expr.stage for expr in self.needed}
        for expr in self.needed:
            if isinstance(expr, Reduced):
                moments[id(expr)] -= 1
        for product, loop in self.private.items():
            for expr in loop.exprs:
                moments[id(expr)] = moments[product]
        return moments

    def _measure(self, expr: Expr) -> int:
        return -(-(expr.domain or 1) * self.lanes * expr.kind.num_bytes // 64) * 64

    def _assign(self, rooms: list["_Room"]) -> None:
        """Places in scratch memory; a room is used again after its last reader."""
        free: dict[int, list[tuple[int, int]]] = defaultdict(list)  # by size: ends and places
        for room in sorted(rooms, key=lambda room: room.begin):
            known = free[room.size]
            if known and min(known)[0] < room.begin:
                _, place = known.pop(known.index(min(known)))
            else:
                place = self.reserve(room.size)
            known.append((room.end, place))
            if isinstance(room.holds, list):
                indices = place + self._measure(room.holds[0].args[0])
                listed = ChangeList(place, indices)
                self.changes.update((id(product), listed) for product in room.holds)
            else:
                self.places[id(room.holds)] = place

    def count_old_bytes(self) -> int:
        """Bytes of old values that products update, for one vector of examples."""
        return sum(self._measure(expr) for expr in self.needed if isinstance(expr, Product))

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
