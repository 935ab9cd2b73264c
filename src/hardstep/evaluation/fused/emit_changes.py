"""Products: their changes are listed while loops run, and the lists multiplied with weights.

A list holds the vectors that differ from the base in some lane that continues, and the indices they
stand at. Several products of one change share it.
"""

from hardstep.evaluation.fused.emit_draft import Draft
from hardstep.evaluation.fused.emit_products import define_product
from hardstep.evaluation.fused.emit_vectors import Value
from hardstep.evaluation.fused.expressions import Kind, Product


def list_change(d: Draft, expr: Product, change: Value, j: Value) -> None:
    """Append what differs at j in some lane that continues."""
    v = d.v
    changes = d.schedule.changes[id(expr)]
    count = d.counts[changes]
    n = v.let(f"load i64, ptr {count}")
    differs = v.compare("fcmp une", expr.kind, change, v.constant(0.0, expr.kind))
    some = v.any(v.binary("and", Kind.I1, differs, d.mask))
    at = v.let(f"mul i64 {n}, {d.lanes * expr.kind.num_bytes}")
    start = d.point_to(changes.vectors)
    v.store(expr.kind, change, v.let(f"getelementptr i8, ptr {start}, i64 {at}"), 4)
    v.line(f"store i64 {j}, ptr {v.offset(Kind.I64, d.point_to(changes.indices), n)}")
    more = v.let(f"zext i1 {some} to i64")
    v.line(f"store i64 {v.let(f'add i64 {n}, {more}')}, ptr {count}")


def prefetch_base(d: Draft, expr: Product, domain: int, j: Value) -> None:
    """Ask for the old values of a product, a few with every change that is listed for it."""
    v = d.v
    v.intrinsics.add("declare void @llvm.prefetch.p0(ptr, i32, i32, i32)")
    for first in range(0, expr.domain or 1, domain):
        line = v.let(f"mul i64 {v.let(f'add i64 {j}, {first}')}, %stride")
        place = v.offset(expr.kind, f"%p{expr.base}", v.let(f"add i64 {line}, %r"))
        v.line(f"call void @llvm.prefetch.p0(ptr {place}, i32 0, i32 2, i32 1)")


def call_product(d: Draft, expr: Product) -> None:
    """Multiply what was listed, into the room of the product."""
    v = d.v
    changes = d.schedule.changes[id(expr)]
    name = _find_product(d, expr.kind, expr.domain or 1)
    n = v.let(f"load i64, ptr {d.counts[changes]}")
    places = (changes.indices, changes.vectors, d.schedule.places[id(expr)])
    listed, vectors, out = map(d.point_to, places)
    base, weight = map(d.point_to_table, (expr.base, expr.weight))
    start = v.offset(expr.kind, base, "%r")
    arguments = f"i64 {n}, ptr {listed}, ptr {vectors}, ptr {weight}"
    arguments += f", ptr {start}, i64 %stride, ptr {out}"
    if v.packed:
        arguments += f", {v.type(Kind.I32)} {v.packed.examples}"
    v.line(f"call void {name}({arguments})")
    if len(expr.args) > 1:
        _add_at_unit(d, expr, out)


def _find_product(d: Draft, kind: Kind, num: int) -> str:
    """The name of a function, written at its first call."""
    packed = d.v.packed is not None
    if (kind, num, packed) not in d.products:
        name, text, intrinsics = define_product(d.lanes, kind, num, packed)
        d.functions[name] = text
        d.v.intrinsics |= intrinsics
        d.products[kind, num, packed] = name
    d.calls[d.products[kind, num, packed]] += 1
    return d.products[kind, num, packed]


def _add_at_unit(d: Draft, expr: Product, out: Value) -> None:
    """Add the second argument of a product at the candidate's unit, if that is one of its."""
    v, kind, units = d.v, expr.kind, expr.units
    place = v.let(f"sub i64 %unit, {units.start}")
    inside = v.let(f"icmp ult i64 {v.let(f'udiv i64 {place}, {units.step}')}, {units.size}")
    if units.step != 1:
        one = v.let(f"icmp eq i64 {v.let(f'urem i64 {place}, {units.step}')}, 0")
        inside = v.let(f"and i1 {inside}, {one}")
        place = v.let(f"udiv i64 {place}, {units.step}")
    here, after = v.label("unit"), v.label("added")
    v.line(f"br i1 {inside}, label %{here}, label %{after}")
    v.block(here)
    at = v.let(f"getelementptr {v.type(kind)}, ptr {out}, i64 {place}")
    total = v.binary("fadd", kind, v.load(kind, at, 4), d.names[id(expr.args[1])])
    v.store(kind, total, at, 4)
    v.line(f"br label %{after}")
    v.block(after)
    d.block = after
