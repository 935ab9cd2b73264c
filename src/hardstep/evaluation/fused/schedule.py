"""Which expression is computed where: stages, loops over axes, room for what outlives a loop."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

from hardstep.evaluation.fused.expressions import Expr
from hardstep.evaluation.fused.leaves import LEAVES
from hardstep.evaluation.fused.relevance import consumers_of, guards
from hardstep.evaluation.fused.translate import Program
from hardstep.evaluation.fused.vectors import BYTES

REDUCTIONS = {"total", "amax", "amin", "argmax", "argmin", "pick"}


@dataclass(eq=False)
class Loop:
    """A loop over an axis: values, reductions and lists of changes for products."""

    domain: int
    exprs: list[Expr] = field(default_factory=list)


@dataclass(frozen=True)
class Changes:
    """Scratch offsets of a product's list: vectors that differ, and the indices they stand at."""

    vectors: int
    indices: int


class Schedule:
    """The order of a program's work for one vector of rows and one candidate."""

    def __init__(self, program: Program, lanes: int) -> None:
        self.lanes = lanes
        roots = [closing.difference for closing in program.closings]
        self.needed = reachable([*roots, *program.exits])
        self.guards = guards(self.needed, roots)
        self.per_lane: dict[int, list[Expr]] = defaultdict(list)
        self.loops: dict[int, dict[int, Loop]] = defaultdict(dict)  # by stage and domain
        self.products: dict[int, list[Expr]] = defaultdict(list)
        self.private: dict[int, Loop] = {}  # of a guarded product: run only with it
        self.loop_of: dict[int, Loop] = {}
        self.scratch = 0
        self.places: dict[int, int] = {}  # scratch offsets of values that outlive their loop
        self.changes: dict[int, Changes] = {}
        self._find_private()
        for expr in self.needed:
            self._place(expr)
        self._find_room()
        self.num_stages = 1 + max(expr.stage for expr in self.needed)

    def _find_private(self) -> None:
        """What only a guarded product needs is computed under its guard."""
        consumers = consumers_of(self.needed)
        order = {id(expr): n for n, expr in enumerate(self.needed)}
        for product in self.needed:
            if id(product) not in self.guards:
                continue
            change = product.args[0]
            assert change.domain is not None
            own = {id(product)}
            members = [e for e in reachable([change]) if e.domain == change.domain]
            for expr in reversed(members):
                inner = expr.op not in LEAVES and expr.op not in REDUCTIONS | {"product"}
                if inner and all(id(consumer) in own for consumer in consumers[id(expr)]):
                    own.add(id(expr))
            if id(change) in own:
                exprs = [e for e in members if id(e) in own] + [product]
                loop = Loop(change.domain, sorted(exprs, key=lambda e: order[id(e)]))
                self.private[id(product)] = loop
                self.loop_of.update((id(expr), loop) for expr in exprs)

    def _place(self, expr: Expr) -> None:
        if expr.op == "product":
            self.products[expr.stage].append(expr)
        elif expr.domain is None and expr.op not in REDUCTIONS:
            self.per_lane[expr.stage].append(expr)
            return
        if expr.op in LEAVES or id(expr) in self.loop_of:
            return
        looped = expr.args[0] if expr.op in REDUCTIONS | {"product"} else expr
        assert looped.domain is not None
        stage = expr.stage - (looped is not expr)
        loop = self.loops[stage].setdefault(looped.domain, Loop(looped.domain))
        loop.exprs.append(expr)
        self.loop_of[id(expr)] = loop

    def _find_room(self) -> None:
        for expr in self.needed:
            if expr.op == "product":
                domain = expr.args[0].domain
                assert domain is not None
                vectors = self.reserve(domain * self.lanes * BYTES[expr.kind])
                self.changes[id(expr)] = Changes(vectors, self.reserve(domain * 8))
                self._keep(expr)
            loop = self.loop_of.get(id(expr))
            for arg in expr.args:
                outlives = arg.domain is not None and self.loop_of.get(id(arg)) is not loop
                if outlives and arg.op not in LEAVES:
                    self._keep(arg)

    def _keep(self, expr: Expr) -> None:
        if id(expr) not in self.places:
            size = (expr.domain or 1) * self.lanes * BYTES[expr.kind]
            self.places[id(expr)] = self.reserve(size)

    def reserve(self, size: int) -> int:
        """An offset in scratch memory with that many bytes of room."""
        place = self.scratch
        self.scratch += -(-size // 64) * 64
        return place


def reachable(roots: Iterable[Expr]) -> list[Expr]:
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
            stack.extend((arg, False) for arg in reversed(expr.args))
    return list(found.values())
