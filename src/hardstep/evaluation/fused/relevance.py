"""Which lanes matter: values that only count under a condition need not be computed elsewhere."""

from collections import defaultdict

from hardstep.evaluation.fused.expressions import Expr
from hardstep.evaluation.fused.translate import Program

SOURCES = {"column", "linear", "spread"}


def consumers_of(needed: list[Expr]) -> dict[int, list[Expr]]:
    """The expressions that use an expression, by its id."""
    found: dict[int, list[Expr]] = defaultdict(list)
    for expr in needed:
        for arg in dict.fromkeys(expr.args):
            found[id(arg)].append(expr)
    return found


def _only_under(expr: Expr, consumer: Expr) -> Expr | None:
    """The condition under which a consumer looks at an argument."""
    if consumer.op == "select" and consumer.args[1] is expr and expr not in consumer.args[::2]:
        return consumer.args[0]
    return None


def guards(needed: list[Expr], roots: list[Expr]) -> dict[int, Expr]:
    """Conditions per lane outside which a product's result is never looked at."""
    consumers = consumers_of(needed)
    found = {}
    for expr in needed:
        if expr.op != "product" or expr in roots:
            continue
        conditions = [_only_under(expr, consumer) for consumer in consumers[id(expr)]]
        first = conditions[0] if conditions else None
        if first is None or any(condition is not first for condition in conditions):
            continue
        if first.domain is None and first.stage <= expr.stage:
            found[id(expr)] = first
    return found


def relevant_where(needed: list[Expr], program: Program) -> list[Expr]:
    """Conditions, the same for all candidates, that every path from the sources must pass."""
    changed = _changed(needed)
    need: dict[int, frozenset[int]] = {}
    conditions: dict[int, Expr] = {}
    consumers = consumers_of(needed)
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
    sources = [need[id(expr)] for expr in needed if expr.op in SOURCES or expr.op == "candidate"]
    common = frozenset.intersection(*sources) if sources else frozenset()
    return [condition for number, condition in conditions.items() if number in common]


def _changed(needed: list[Expr]) -> set[int]:
    """Expressions that depend on the candidate."""
    found: set[int] = set()
    for expr in needed:
        own = expr.op in SOURCES or expr.op in ("candidate", "unit", "is_unit")
        if own or any(id(arg) in found for arg in expr.args):
            found.add(id(expr))
    return found
