"""Lanes that do not stand side by side: reading and rearranging them."""

from hardstep.evaluation.fused import processor
from hardstep.evaluation.fused.vectors import BYTES, ELEMENT, Value, Vectors

REGISTER_BYTES = 32


def gather(v: Vectors, kind: str, pointer: Value, index: Value, mask: Value) -> Value:
    """The numbers at a vector of i64 indices, zeros where the mask does not hold."""
    typ, pointers = v.type(kind), f"<{v.lanes} x ptr>"
    place = v.let(f"getelementptr {ELEMENT[kind]}, ptr {pointer}, {v.type('i64')} {index}")
    name = f"@llvm.masked.gather.v{v.lanes}{kind}.v{v.lanes}p0"
    v.intrinsics.add(f"declare {typ} {name}({pointers}, i32, {v.type('i1')}, {typ})")
    rest = f"i32 4, {v.type('i1')} {mask}, {typ} zeroinitializer"
    return v.let(f"call {typ} {name}({pointers} {place}, {rest})")


def can_rearrange() -> bool:
    """Whether the processor has an instruction for it."""
    return bool(processor.features().get("avx2"))


def rearranged(v: Vectors, kind: str, value: Value, rows: Value) -> Value:
    """value[rows], lane by lane; each half of the lanes takes rows of its half."""
    if (kind, v.lanes) == ("f32", 16) and processor.features().get("avx512f"):
        return _permuted(v, "avx512.permvar.sf.512", 16, value, rows)
    half_bytes = v.lanes // 2 * BYTES[kind]
    if half_bytes == REGISTER_BYTES and can_rearrange():
        return _halves(v, kind, value, rows)
    result = "poison"
    for lane in range(v.lanes):  # of kinds that are read once per vector, such as labels
        row = v.let(f"extractelement {v.type('i32')} {rows}, i64 {lane}")
        number = v.let(f"extractelement {v.type(kind)} {value}, i32 {row}")
        element = f"{ELEMENT[kind]} {number}"
        result = v.let(f"insertelement {v.type(kind)} {result}, {element}, i64 {lane}")
    return result


def _permuted(v: Vectors, name: str, lanes: int, value: Value, places: Value) -> Value:
    """An instruction of the processor's that rearranges singles within a register."""
    singles, numbers = f"<{lanes} x float>", f"<{lanes} x i32>"
    v.intrinsics.add(f"declare {singles} @llvm.x86.{name}({singles}, {numbers})")
    return v.let(f"call {singles} @llvm.x86.{name}({singles} {value}, {numbers} {places})")


def _halves(v: Vectors, kind: str, value: Value, rows: Value) -> Value:
    """Two registers, each rearranged as eight singles; a double moves as two of them."""
    num = v.lanes // 2
    typ, found = f"<{num} x {ELEMENT[kind]}>", []
    for half in (0, 1):
        places = _part(v, "i32", rows, half)
        if num == 4:
            places = _pairs(v, places)
        singles = v.let(f"bitcast {typ} {_part(v, kind, value, half)} to <8 x float>")
        moved = _permuted(v, "avx2.permps", 8, singles, places)
        found.append(v.let(f"bitcast <8 x float> {moved} to {typ}"))
    order = ", ".join(f"i32 {lane}" for lane in range(v.lanes))
    both = f"{typ} {found[0]}, {typ} {found[1]}"
    return v.let(f"shufflevector {both}, <{v.lanes} x i32> <{order}>")


def _pairs(v: Vectors, places: Value) -> Value:
    """Places of doubles as those of singles: p becomes 2p and 2p + 1."""
    order = ", ".join(f"i32 {lane}" for lane in (0, 0, 1, 1, 2, 2, 3, 3))
    four = "<4 x i32>"
    twice = v.let(f"shufflevector {four} {places}, {four} poison, <8 x i32> <{order}>")
    first = v.let(f"shl <8 x i32> {twice}, <{', '.join(['i32 1'] * 8)}>")
    return v.let(f"add <8 x i32> {first}, <{', '.join(['i32 0, i32 1'] * 4)}>")


def _part(v: Vectors, kind: str, value: Value, half: int) -> Value:
    num = v.lanes // 2
    order = ", ".join(f"i32 {num * half + lane}" for lane in range(num))
    typ = v.type(kind)
    return v.let(f"shufflevector {typ} {value}, {typ} poison, <{num} x i32> <{order}>")
