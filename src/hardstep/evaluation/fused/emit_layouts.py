"""Kernels that prepare recorded values: examples last, and which units vary over them.

A network in time has a table for every step, so that what torch needs to start its operations, and
to write what they find in between, was a fortieth of a training step.
"""

from functools import cache

from hardstep.evaluation.fused.emit_vectors import VECTOR_BYTES
from hardstep.evaluation.fused.expressions import Kind

Value = str  # an SSA name

# for e in 0..stride, for unit in first..last, both by vectors:
#     result[unit .., e ..] = transposed value[e .., unit ..], zeros beyond the last example
_TURNING = """\
define void @run(ptr %tables, i64 %first, i64 %last, i64 %examples, i64 %stride, ptr %scratch) {{
entry:
  %value = load ptr, ptr %tables
  %result_at = getelementptr ptr, ptr %tables, i64 1
  %result = load ptr, ptr %result_at
  %sizes_at = getelementptr ptr, ptr %tables, i64 2
  %sizes = load ptr, ptr %sizes_at
  %width = load i64, ptr %sizes
  %last_one = insertelement {numbers} poison, i64 %last, i64 0
  %lasts = shufflevector {numbers} %last_one, {numbers} poison, {first}
  br label %examples_loop
examples_loop:
  %e = phi i64 [ 0, %entry ], [ %e_next, %examples_next ]
  br label %units_loop
units_loop:
  %u = phi i64 [ %first, %examples_loop ], [ %u_next, %units_loop ]
  %u_one = insertelement {numbers} poison, i64 %u, i64 0
  %u_all = shufflevector {numbers} %u_one, {numbers} poison, {first}
  %places = add {numbers} %u_all, <{steps}>
  %there = icmp slt {numbers} %places, %lasts
{loads}
{turns}
{stores}
  %u_next = add i64 %u, {lanes}
  %u_more = icmp slt i64 %u_next, %last
  br i1 %u_more, label %units_loop, label %examples_next
examples_next:
  %e_next = add i64 %e, {lanes}
  %e_more = icmp slt i64 %e_next, %stride
  br i1 %e_more, label %examples_loop, label %exit
exit:
  ret void
}}
declare {vector} @{load}(ptr, i32, {truths}, {vector})
declare void @{store}({vector}, ptr, i32, {truths})
"""
_LOAD = """\
  %e{n} = add i64 %e, {n}
  %known{n} = icmp slt i64 %e{n}, %examples
  %known_one{n} = insertelement {truths} poison, i1 %known{n}, i64 0
  %known_all{n} = shufflevector {truths} %known_one{n}, {truths} poison, {first}
  %mask{n} = and {truths} %there, %known_all{n}
  %line{n} = mul i64 %e{n}, %width
  %from{n} = add i64 %line{n}, %u
  %from_at{n} = getelementptr {real}, ptr %value, i64 %from{n}
  %row{n}.0 = call {vector} @{load}(ptr %from_at{n}, {align}, {truths} %mask{n}, {vector} {none})"""
_STORE = """\
  %unit{n} = add i64 %u, {n}
  %own{n} = extractelement {truths} %there, i64 {n}
  %own_one{n} = insertelement {truths} poison, i1 %own{n}, i64 0
  %own_all{n} = shufflevector {truths} %own_one{n}, {truths} poison, {first}
  %start{n} = mul i64 %unit{n}, %stride
  %to{n} = add i64 %start{n}, %e
  %to_at{n} = getelementptr {real}, ptr %result, i64 %to{n}
  call void @{store}({vector} %row{n}.{turned}, ptr %to_at{n}, {align}, {truths} %own_all{n})"""


@cache
def write_turning(kind: Kind) -> str:
    """The text of a kernel over units: values (examples, units) as tables (units, stride)."""
    lanes = VECTOR_BYTES // kind.num_bytes
    turned, vector = lanes.bit_length() - 1, f"<{lanes} x {kind.element}>"
    names = {
        "real": kind.element,
        "vector": vector,
        "numbers": f"<{lanes} x i64>",
        "truths": f"<{lanes} x i1>",
        "load": f"llvm.masked.load.v{lanes}{kind}.p0",
        "store": f"llvm.masked.store.v{lanes}{kind}.p0",
        "align": f"i32 {kind.num_bytes}",
        "none": "zeroinitializer",
        "first": f"<{lanes} x i32> zeroinitializer",  # that lane everywhere
    }
    return _TURNING.format(
        **names,
        lanes=lanes,
        steps=", ".join(f"i64 {n}" for n in range(lanes)),
        loads="\n".join(_LOAD.format(n=n, **names) for n in range(lanes)),
        turns="\n".join(_turn(lanes, turn, vector) for turn in range(turned)),
        stores="\n".join(_STORE.format(n=n, turned=turned, **names) for n in range(lanes)),
    )


def _turn(lanes: int, turn: int, vector: str) -> str:
    """One of the exchanges that turn a square: halves, quarters … of pairs of rows."""
    apart, lines = 1 << turn, []
    for row in range(lanes):
        low, high = row & ~apart, row | apart
        if row == low:
            order = [j if not j & apart else lanes + (j ^ apart) for j in range(lanes)]
        else:
            order = [j ^ apart if not j & apart else lanes + j for j in range(lanes)]
        places = ", ".join(f"i32 {place}" for place in order)
        pair = f"{vector} %row{low}.{turn}, {vector} %row{high}.{turn}"
        lines.append(f"  %row{row}.{turn + 1} = shufflevector {pair}, <{lanes} x i32> <{places}>")
    return "\n".join(lines)


# for row in first..last: varies[row] = any(table[row, e] != table[row, 0] for e in 0..examples)
_VARYING = """\
define void @run(ptr %tables, i64 %first, i64 %last, i64 %examples, i64 %stride, ptr %scratch) {{
entry:
  %table = load ptr, ptr %tables
  %varies_at = getelementptr ptr, ptr %tables, i64 1
  %varies = load ptr, ptr %varies_at
  br label %rows
rows:
  %row = phi i64 [ %first, %entry ], [ %row_next, %found ]
  %start = mul i64 %row, %stride
  %line = getelementptr {real}, ptr %table, i64 %start
  %usual = load {real}, ptr %line
  %usual_one = insertelement {vector} poison, {real} %usual, i64 0
  %usuals = shufflevector {vector} %usual_one, {vector} poison, {first}
  br label %vectors
vectors:
  %e = phi i64 [ 0, %rows ], [ %e_next, %look ]
  %e_next = add i64 %e, {lanes}
  %whole = icmp sle i64 %e_next, %examples
  br i1 %whole, label %look, label %singles
look:
  %some_at = getelementptr {real}, ptr %line, i64 %e
  %some = load {vector}, ptr %some_at, align {bytes}
  %differ = fcmp une {vector} %some, %usuals
  %bits = bitcast <{lanes} x i1> %differ to i{lanes}
  %differs = icmp ne i{lanes} %bits, 0
  br i1 %differs, label %found, label %vectors
singles:
  %s = phi i64 [ %e, %vectors ], [ %s_next, %look_at_one ]
  %s_more = icmp slt i64 %s, %examples
  br i1 %s_more, label %look_at_one, label %found
look_at_one:
  %one_at = getelementptr {real}, ptr %line, i64 %s
  %one = load {real}, ptr %one_at
  %one_differs = fcmp une {real} %one, %usual
  %s_next = add i64 %s, 1
  br i1 %one_differs, label %found, label %singles
found:
  %result = phi i8 [ 1, %look ], [ 0, %singles ], [ 1, %look_at_one ]
  %place = getelementptr i8, ptr %varies, i64 %row
  store i8 %result, ptr %place
  %row_next = add i64 %row, 1
  %row_more = icmp slt i64 %row_next, %last
  br i1 %row_more, label %rows, label %exit
exit:
  ret void
}}
"""


@cache
def write_varying(kind: Kind) -> str:
    """The text of a kernel over rows of a table: whether the first numbers of a row differ."""
    lanes = VECTOR_BYTES // kind.num_bytes
    vector = f"<{lanes} x {kind.element}>"
    first = f"<{lanes} x i32> zeroinitializer"
    return _VARYING.format(
        real=kind.element, bytes=kind.num_bytes, lanes=lanes, vector=vector, first=first
    )
