"""A matrix product for one vector of rows: out = base + Σ over a list of changes · weights.

Weights are (inputs, outputs). Outputs are taken a tile at a time, so that a tile's sums stay in
registers while the list is gone through. However wide a tile is, every sum is added up in the order
of the list.
"""

from hardstep.evaluation.fused import processor
from hardstep.evaluation.fused.lanes import rearranged
from hardstep.evaluation.fused.vectors import ELEMENT, Vectors


def declare_product(lanes: int, kind: str, num: int, packed: bool) -> tuple[str, str, set[str]]:
    """Name and text of the function for this number of outputs, and the intrinsics it uses.

    Packed lanes take their rows of the base as `%rows` says, others stand side by side.
    """
    tiles = -(-num // processor.sums_in_registers(processor.features()))
    size, wider = divmod(num, tiles)  # `wider` tiles have one output more
    v = Vectors(lanes)
    name = f"@product{num}_{kind}{'_packed' if packed else ''}"
    shapes = [(wider, size + 1), (tiles - wider, size)]
    start = 0
    for part, (count, width) in enumerate(shape for shape in shapes if shape[0]):
        _tiles(v, kind, num, start, count, width, part, packed)
        start += count * width
    body = "\n".join(v.body)
    signature = "i64 %count, ptr %list, ptr %changes, ptr %weight, ptr %base, i64 %stride, ptr %out"
    signature += f", {v.type('i32')} %rows" if packed else ""
    text = f"define internal void {name}({signature}) #0 {{\nentry:\n{body}\n  ret void\n}}"
    return name, text, v.intrinsics


def _tiles(
    v: Vectors, kind: str, num: int, start: int, count: int, width: int, part: int, packed: bool
) -> None:
    """A loop over tiles of one width, and inside it one over the list."""
    typ, element = v.type(kind), ELEMENT[kind]
    tile, step = f"%o{part}", f"%k{part}"
    outer, inner, after, done = (f"{stem}{part}" for stem in ("tile", "step", "store", "done"))
    before = "entry" if part == 0 else f"done{part - 1}"
    v.line(f"br label %{outer}")
    v.block(outer)
    v.body.append(f"  {tile} = phi i64 [ {start}, %{before} ], [ {tile}.next, %{after} ]")
    firsts = []
    for i in range(width):
        row = v.let(f"mul i64 {v.let(f'add i64 {tile}, {i}')}, %stride")
        first = v.load(kind, v.offset(kind, "%base", row), 4)
        firsts.append(rearranged(v, kind, first, "%rows") if packed else first)
    empty = v.let("icmp eq i64 %count, 0")
    v.line(f"br i1 {empty}, label %{after}, label %{inner}")
    v.block(inner)
    sums = [v.name() for _ in range(width)]
    nexts = [v.name() for _ in range(width)]
    v.body.append(f"  {step} = phi i64 [ 0, %{outer} ], [ {step}.next, %{inner} ]")
    for first, total, following in zip(firsts, sums, nexts, strict=True):
        v.body.append(f"  {total} = phi {typ} [ {first}, %{outer} ], [ {following}, %{inner} ]")
    change = v.load(kind, v.let(f"getelementptr {typ}, ptr %changes, i64 {step}"), 4)
    index = v.let(f"load i64, ptr {v.offset('i64', '%list', step)}")
    place = v.let(f"add i64 {v.let(f'mul i64 {index}, {num}')}, {tile}")
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
        place = v.let(f"add i64 {tile}, {i}")
        v.store(kind, result, v.let(f"getelementptr {typ}, ptr %out, i64 {place}"), 4)
    v.line(f"{tile}.next = add i64 {tile}, {width}")
    last = v.let(f"icmp eq i64 {tile}.next, {start + count * width}")
    v.line(f"br i1 {last}, label %{done}, label %{outer}")
    v.block(done)
