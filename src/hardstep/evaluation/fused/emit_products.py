"""Functions written apart from the loop of a kernel: a product, and what shortens another.

`define_product` is for one vector of examples: out = base + Σ over a list of changes · weights.
Weights are (inputs, outputs). Outputs are taken a strip at a time, so that a strip's sums stay in
registers while the list is read. However wide it is, every sum is added up in the order of the
list.

`write_shortening` prepares the product of directions and examples, which is torch's: directions
without the inputs that are the same in all examples. A line of the result holds the chosen numbers
of a direction, and last what the others add up to, each times its constant. torch does that in
three passes on one thread, which at gigabytes of directions takes a sixth of a step.
"""

from functools import cache

from hardstep.evaluation.fused.emit_vectors import Vectors, rearrange, sums_in_registers
from hardstep.evaluation.fused.expressions import Kind


def define_product(lanes: int, kind: Kind, num: int, packed: bool) -> tuple[str, str, set[str]]:
    """Name and text of the function for this number of outputs, and the intrinsics it uses.

    Packed lanes take their examples of the base as `%rows` says, others stand side by side.
    """
    strips = -(-num // sums_in_registers())
    size, wider = divmod(num, strips)  # `wider` strips have one output more
    v = Vectors(lanes)
    name = f"@product{num}_{kind}{'_packed' if packed else ''}"
    shapes = [(wider, size + 1), (strips - wider, size)]
    start = 0
    for part, (count, width) in enumerate(shape for shape in shapes if shape[0]):
        _write_strips(v, kind, num, start, count, width, part, packed)
        start += count * width
    body = "\n".join(v.body)
    signature = "i64 %count, ptr %list, ptr %changes, ptr %weight, ptr %base, i64 %stride, ptr %out"
    signature += f", {v.type(Kind.I32)} %rows" if packed else ""
    text = f"define internal void {name}({signature}) #0 {{\nentry:\n{body}\n  ret void\n}}"
    return name, text, v.intrinsics


def _write_strips(
    v: Vectors, kind: Kind, num: int, start: int, count: int, width: int, part: int, packed: bool
) -> None:
    """A loop over strips of outputs of one width, and inside it one over the list."""
    typ, element = v.type(kind), kind.element
    strip, step = f"%o{part}", f"%k{part}"
    outer, inner, after, done = (f"{stem}{part}" for stem in ("tile", "step", "store", "done"))
    before = "entry" if part == 0 else f"done{part - 1}"
    v.line(f"br label %{outer}")
    v.block(outer)
    v.body.append(f"  {strip} = phi i64 [ {start}, %{before} ], [ {strip}.next, %{after} ]")
    firsts = []
    for i in range(width):
        line = v.let(f"mul i64 {v.let(f'add i64 {strip}, {i}')}, %stride")
        first = v.load(kind, v.offset(kind, "%base", line), 4)
        firsts.append(rearrange(v, kind, first, "%rows") if packed else first)
    empty = v.let("icmp eq i64 %count, 0")
    v.line(f"br i1 {empty}, label %{after}, label %{inner}")
    v.block(inner)
    sums = [v.name() for _ in range(width)]
    nexts = [v.name() for _ in range(width)]
    v.body.append(f"  {step} = phi i64 [ 0, %{outer} ], [ {step}.next, %{inner} ]")
    for first, total, following in zip(firsts, sums, nexts, strict=True):
        v.body.append(f"  {total} = phi {typ} [ {first}, %{outer} ], [ {following}, %{inner} ]")
    change = v.load(kind, v.let(f"getelementptr {typ}, ptr %changes, i64 {step}"), 4)
    index = v.let(f"load i64, ptr {v.offset(Kind.I64, '%list', step)}")
    place = v.let(f"add i64 {v.let(f'mul i64 {index}, {num}')}, {strip}")
    row = v.offset(kind, "%weight", place)
    for i, (total, following) in enumerate(zip(sums, nexts, strict=True)):
        weight = v.let(f"load {element}, ptr {v.offset(kind, row, str(i))}")
        factor = v.splat(weight, kind)
        result = v.fma(kind, change, factor, total)
        v.body[-1] = v.body[-1].replace(f"{result} =", f"{following} =", 1)
    v.line(f"{step}.next = add i64 {step}, 1")
    v.line(f"br i1 {v.let(f'icmp eq i64 {step}.next, %count')}, label %{after}, label %{inner}")
    v.block(after)
    for i, (first, following) in enumerate(zip(firsts, nexts, strict=True)):
        result = v.let(f"phi {typ} [ {first}, %{outer} ], [ {following}, %{inner} ]")
        firsts[i] = result
    for i, result in enumerate(firsts):
        place = v.let(f"add i64 {strip}, {i}")
        v.store(kind, result, v.let(f"getelementptr {typ}, ptr %out, i64 {place}"), 4)
    v.line(f"{strip}.next = add i64 {strip}, {width}")
    last = v.let(f"icmp eq i64 {strip}.next, {start + count * width}")
    v.line(f"br i1 {last}, label %{done}, label %{outer}")
    v.block(done)


# -- shorter directions ----------------------------------------------------------------------

CHAINS = 4  # sums in flight: one addition would wait for the last

# for row (a direction) in first..last:
#     for k in 0..kept: result[row, k] = directions[row, chosen[k]]
#     result[row, kept] = Σ_k constants[k] · directions[row, others[k]]
_SHORTENING = """
define void @run(ptr %tables, i64 %first, i64 %last, i64 %a, i64 %b, ptr %scratch) {{
entry:
{loads}
  %inputs = load i64, ptr %t5
  %kept_at = getelementptr i64, ptr %t5, i64 1
  %kept = load i64, ptr %kept_at
  %others_at = getelementptr i64, ptr %t5, i64 2
  %others = load i64, ptr %others_at
  %width = add i64 %kept, 1
  br label %rows
rows:
  %row = phi i64 [ %first, %entry ], [ %row_next, %done ]
  %row_more = icmp slt i64 %row, %last
  br i1 %row_more, label %row_begin, label %exit
row_begin:
  %from_at = mul i64 %row, %inputs
  %from = getelementptr {real}, ptr %t0, i64 %from_at
  %to_at = mul i64 %row, %width
  %to = getelementptr {real}, ptr %t4, i64 %to_at
  br label %copy
copy:
  %k = phi i64 [ 0, %row_begin ], [ %k_next, %copying ]
  %k_more = icmp slt i64 %k, %kept
  br i1 %k_more, label %copying, label %sum
copying:
  %chosen_at = getelementptr i64, ptr %t1, i64 %k
  %chosen = load i64, ptr %chosen_at
  %number_at = getelementptr {real}, ptr %from, i64 %chosen
  %number = load {real}, ptr %number_at
  %place = getelementptr {real}, ptr %to, i64 %k
  store {real} %number, ptr %place
  %k_next = add i64 %k, 1
  br label %copy
sum:
  %j = phi i64 [ 0, %copy ], [ %j_next, %summing ]
{sums}
  %j_more = icmp slt i64 %j, %others
  br i1 %j_more, label %summing, label %done
summing:
{additions}
  %j_next = add i64 %j, {chains}
  br label %sum
done:
{total}
  %last_place = getelementptr {real}, ptr %to, i64 %kept
  store {real} %total{last_sum}, ptr %last_place
  %row_next = add i64 %row, 1
  br label %rows
exit:
  ret void
}}
"""
_ADDITION = """
  %i{n} = add i64 %j, {n}
  %other_at{n} = getelementptr i64, ptr %t2, i64 %i{n}
  %other{n} = load i64, ptr %other_at{n}
  %value_at{n} = getelementptr {real}, ptr %from, i64 %other{n}
  %value{n} = load {real}, ptr %value_at{n}
  %constant_at{n} = getelementptr {real}, ptr %t3, i64 %i{n}
  %constant{n} = load {real}, ptr %constant_at{n}
  %term{n} = fmul {real} %value{n}, %constant{n}
  %sum_next{n} = fadd {real} %sum{n}, %term{n}"""


@cache
def write_shortening(kind: Kind) -> str:
    """The text of a kernel over directions (n, inputs), for one kind of number."""
    real, chains = kind.element, range(CHAINS)
    loads = "\n".join(
        f"  %at{n} = getelementptr ptr, ptr %tables, i64 {n}\n  %t{n} = load ptr, ptr %at{n}"
        for n in range(6)
    )
    sums = "\n".join(
        f"  %sum{n} = phi {real} [ 0.0, %copy ], [ %sum_next{n}, %summing ]" for n in chains
    )
    total = [f"  %total0 = fadd {real} %sum0, 0.0"]
    total += [f"  %total{n} = fadd {real} %total{n - 1}, %sum{n}" for n in chains if n]
    return _SHORTENING.format(
        real=real,
        loads=loads,
        sums=sums,
        additions="".join(_ADDITION.format(n=n, real=real) for n in chains),
        chains=CHAINS,
        total="\n".join(total),
        last_sum=CHAINS - 1,
    )
