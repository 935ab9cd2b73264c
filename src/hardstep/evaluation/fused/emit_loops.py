"""Loops over the axis of a layer: values, reductions, and lists of changes for products.

A value that outlives its loop is kept in scratch memory. A loop that stands in many places, such as
at every time step, becomes a function.
"""

from collections import ChainMap
from collections.abc import Iterable
from itertools import chain

from hardstep.evaluation.fused.emit_changes import list_change, prefetch_base
from hardstep.evaluation.fused.emit_draft import Draft
from hardstep.evaluation.fused.emit_expressions import emit_elementwise, emit_leaf
from hardstep.evaluation.fused.emit_reductions import reduce_by, start_reduction
from hardstep.evaluation.fused.emit_vectors import Value, gather
from hardstep.evaluation.fused.expressions import (
    Concat,
    Elementwise,
    Expr,
    Kind,
    Leaf,
    Lookup,
    Pick,
    Product,
    Reduced,
)
from hardstep.evaluation.fused.outline import outline_loop
from hardstep.evaluation.fused.schedule import Loop

MANY_STEPS = 32  # of a loop over time; the text of more takes long to compile


def emit_loop(d: Draft, loop: Loop) -> None:
    """A loop, and the results of its reductions behind it."""
    v, exprs = d.v, loop.exprs
    sums = {id(e): start_reduction(v, e) for e in exprs if isinstance(e, Reduced)}
    lists = {d.schedule.changes[id(expr)]: expr for expr in exprs if isinstance(expr, Product)}
    for listed in lists:
        v.line(f"store i64 0, ptr {d.counts[listed]}")
    label, after = v.label("axis"), v.label("after")
    j, following, begin = v.name(), v.name(), len(v.body)
    v.line(f"br label %{label}")
    v.block(label)
    v.body.append(f"  {j} = phi i64 [ 0, %{d.block} ], [ {following}, %{label} ]")
    size = _choose_step(loop)
    indices = [j, *(v.let(f"add i64 {j}, {more}") for more in range(1, size))]
    known: list[dict[int, Value]] = [{} for _ in indices]
    for expr in exprs:
        for index, local in zip(indices, known, strict=True):
            if isinstance(expr, Reduced):
                new = _evaluate(d, expr.args[0], loop, local, index)
                chosen = d.names[id(expr.args[1])] if isinstance(expr, Pick) else None
                reduce_by(v, expr, sums[id(expr)], new, index, chosen)
            elif isinstance(expr, Product):
                if lists[d.schedule.changes[id(expr)]] is expr:  # once for all of them
                    change = _evaluate(d, expr.args[0], loop, local, index)
                    list_change(d, expr, change, index)
                if d.prefetches:
                    prefetch_base(d, expr, loop.domain, index)
            else:
                value = _evaluate(d, expr, loop, local, index)
                if id(expr) in d.schedule.places:
                    d.store(expr, value, index)
    v.line(f"{following} = add i64 {j}, {size}")
    done = v.let(f"icmp eq i64 {following}, {loop.domain}")
    v.line(f"br i1 {done}, label %{after}, label %{label}")
    if d.repeats:
        variables = [*chain(*sums.values()), *(d.counts[listed] for listed in lists)]
        _outline(d, begin, after, loop, variables)
    v.block(after)
    d.block = after
    for expr in exprs:
        if id(expr) in sums:
            variable = sums[id(expr)][-1]
            d.names[id(expr)] = v.let(f"load {v.type(expr.kind)}, ptr {variable}")


def _choose_step(loop: Loop) -> int:
    """How many indices are computed side by side: while one waits, another goes on.

    A neuron's time steps wait for each other; neurons do not.
    """
    chain = sum(isinstance(expr, Product) for expr in loop.exprs)
    return 2 if 1 < chain <= MANY_STEPS and loop.domain % 2 == 0 else 1


def _outline(d: Draft, begin: int, after: str, loop: Loop, variables: Iterable[Value]) -> None:
    """Put a call into the place of a loop's text."""
    v = d.v
    types = dict.fromkeys(d.places.values(), "ptr") | dict.fromkeys(variables, "ptr noalias")
    types[d.mask] = v.type(Kind.I1)
    if v.packed:
        types[v.packed.examples] = v.type(Kind.I32)
        types[v.packed.candidates] = v.type(Kind.I64)
    for arg in chain.from_iterable(expr.args for expr in loop.exprs):
        if id(arg) in d.names:
            types[d.names[id(arg)]] = v.type(arg.kind)
    known = ChainMap(types, d.common)
    made = outline_loop(v.body[begin:], d.block, after, known)
    del v.body[begin:]
    v.line(d.call(made, known))
    v.line(f"br label %{after}")


def _evaluate(d: Draft, expr: Expr, loop: Loop, local: dict[int, Value], j: Value) -> Value:
    """An expression at index j: computed, kept from an earlier loop, or read."""
    if expr.domain is None:
        return d.names[id(expr)]
    if id(expr) in local:
        return local[id(expr)]
    v = d.v
    if isinstance(expr, Leaf):
        found = emit_leaf(v, expr, j)
    elif isinstance(expr, Product | Concat) or d.schedule.loop_of[id(expr)] is not loop:
        found = v.load(expr.kind, d.find_address(expr, j), expr.kind.num_bytes)
    elif isinstance(expr, Lookup):
        found = _look_up(d, expr, j)
    else:
        assert isinstance(expr, Elementwise)  # a reduction has no domain
        args = [_evaluate(d, arg, loop, local, j) for arg in expr.args]
        found = emit_elementwise(v, expr, args)
    local[id(expr)] = found
    return found


def _look_up(d: Draft, expr: Lookup, j: Value) -> Value:
    """table[index, j] per lane."""
    v = d.v
    index = d.names[id(expr.args[0])]
    start = v.binary("mul", Kind.I64, index, v.constant(expr.domain or 1, Kind.I64))
    place = v.binary("add", Kind.I64, start, v.splat(j, Kind.I64))
    return gather(v, expr.kind, f"%p{expr.table}", place, d.mask)


def emit_concat(d: Draft, expr: Concat) -> None:
    """Copy parts to where they stand one after the other."""
    v, start = d.v, 0
    for part in expr.args:
        assert part.domain is not None
        label, after = v.label("copy"), v.label("copied")
        j, following = v.name(), v.name()
        v.line(f"br label %{label}")
        v.block(label)
        v.body.append(f"  {j} = phi i64 [ 0, %{d.block} ], [ {following}, %{label} ]")
        if isinstance(part, Leaf):
            value = emit_leaf(v, part, j)
        else:
            value = v.load(part.kind, d.find_address(part, j), part.kind.num_bytes)
        d.store(expr, value, v.let(f"add i64 {j}, {start}"))
        v.line(f"{following} = add i64 {j}, 1")
        done = v.let(f"icmp eq i64 {following}, {part.domain}")
        v.line(f"br i1 {done}, label %{after}, label %{label}")
        v.block(after)
        d.block = after
        start += part.domain
