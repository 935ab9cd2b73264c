"""LLVM assembly for vectors of lanes, and what the processor offers for them.

Text instead of a builder: it is the key under which compiled kernels are kept, and it can be
read. Nothing here allows LLVM to reorder or contract arithmetic, so a kernel rounds as written;
`fma` appears where we write it.
"""

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

import llvmlite.binding as llvm
import numpy as np

from hardstep.evaluation.fused.expressions import Kind, Number

Value = str  # an SSA name


@dataclass(frozen=True)
class Packed:
    """Where lanes come from that do not stand side by side."""

    examples: Value  # i32 per lane: its example's place within the vector
    candidates: Value  # i64 per lane


class Vectors:
    """Writes the instructions of one function, for a fixed number of lanes."""

    def __init__(self, lanes: int) -> None:
        self.lanes = lanes
        self.packed: Packed | None = None
        self.head: list[str] = []  # what belongs in the entry block: constants, accumulators
        self.body: list[str] = []
        self.count = 0
        self.constants: dict[tuple[Kind, str], Value] = {}
        self.intrinsics: set[str] = set()

    # -- text -----------------------------------------------------------------------------

    def type(self, kind: Kind) -> str:
        """The vector type of a kind."""
        return f"<{self.lanes} x {kind.element}>"

    def name(self) -> Value:
        """A fresh name."""
        self.count += 1
        return f"%v{self.count}"

    def line(self, text: str) -> None:
        """An instruction without a result."""
        self.body.append(f"  {text}")

    def let(self, text: str) -> Value:
        """An instruction with a result."""
        name = self.name()
        self.body.append(f"  {name} = {text}")
        return name

    def label(self, stem: str) -> str:
        """A fresh block label."""
        self.count += 1
        return f"{stem}{self.count}"

    def block(self, label: str) -> None:
        """Start a block."""
        self.body.append(f"{label}:")

    def constant(self, value: Number, kind: Kind) -> Value:
        """The number in every lane; made once per function."""
        text = literal(value, kind)
        key = (kind, text)
        if key not in self.constants:
            element = f"{kind.element} {text}"
            self.constants[key] = f"<{', '.join([element] * self.lanes)}>"
        return self.constants[key]

    def splat(self, scalar: Value, kind: Kind) -> Value:
        """A scalar in every lane."""
        first = self.let(f"insertelement {self.type(kind)} poison, {kind.element} {scalar}, i64 0")
        mask = f"<{self.lanes} x i32> zeroinitializer"
        return self.let(
            f"shufflevector {self.type(kind)} {first}, {self.type(kind)} poison, {mask}"
        )

    def variable(self, kind: Kind, scalar: bool = False) -> Value:
        """A place to accumulate in; LLVM turns it into a register."""
        name = self.name()
        element = kind.element if scalar else self.type(kind)
        self.head.append(f"  {name} = alloca {element}")
        return name

    def load(self, kind: Kind, address: Value, align: int) -> Value:
        """Lanes from memory; truth values are bytes there."""
        if kind is Kind.I1:
            raw = self.let(f"load <{self.lanes} x i8>, ptr {address}, align 1")
            zero = f"<{self.lanes} x i8> zeroinitializer"
            return self.let(f"icmp ne {zero}, {raw}")
        return self.let(f"load {self.type(kind)}, ptr {address}, align {align}")

    def store(self, kind: Kind, value: Value, address: Value, align: int) -> None:
        """Lanes to memory."""
        self.line(f"store {self.type(kind)} {value}, ptr {address}, align {align}")

    def offset(self, kind: Kind, pointer: Value, index: Value) -> Value:
        """The address of an element."""
        return self.let(f"getelementptr {kind.stored}, ptr {pointer}, i64 {index}")

    # -- arithmetic -----------------------------------------------------------------------

    def binary(self, instruction: str, kind: Kind, a: Value, b: Value) -> Value:
        """Such as `fadd` or `and`."""
        return self.let(f"{instruction} {self.type(kind)} {a}, {b}")

    def compare(self, predicate: str, kind: Kind, a: Value, b: Value) -> Value:
        """Truth values; `predicate` such as `fcmp oge` or `icmp eq`."""
        return self.let(f"{predicate} {self.type(kind)} {a}, {b}")

    def select(self, condition: Value, kind: Kind, a: Value, b: Value) -> Value:
        """Where the condition holds the first, else the second."""
        left, right = f"{self.type(kind)} {a}", f"{self.type(kind)} {b}"
        return self.let(f"select {self.type(Kind.I1)} {condition}, {left}, {right}")

    def convert(self, instruction: str, value: Value, old: Kind, new: Kind) -> Value:
        """Such as `fpext`, `sitofp`, `bitcast`."""
        return self.let(f"{instruction} {self.type(old)} {value} to {self.type(new)}")

    def call(self, intrinsic: str, kind: Kind, *values: Value) -> Value:
        """An LLVM intrinsic of one kind, such as `floor`."""
        typ = self.type(kind)
        name = f"@llvm.{intrinsic}.v{self.lanes}{kind.label}"
        self.intrinsics.add(f"declare {typ} {name}({', '.join([typ] * len(values))})")
        return self.let(f"call {typ} {name}({', '.join(f'{typ} {v}' for v in values)})")

    def fma(self, kind: Kind, a: Value, b: Value, c: Value) -> Value:
        """The sum a·b + c, rounded once."""
        return self.call("fma", kind, a, b, c)

    def any(self, condition: Value) -> Value:
        """Whether a lane holds true, a scalar."""
        integer = f"i{self.lanes}"
        bits = self.let(f"bitcast {self.type(Kind.I1)} {condition} to {integer}")
        return self.let(f"icmp ne {integer} {bits}, 0")


def literal(value: Number, kind: Kind) -> str:
    """A number as LLVM writes it; floats as the bits of a double."""
    if kind is Kind.I1:
        return "true" if value else "false"
    if not kind.is_float:
        return str(int(value))
    with np.errstate(over="ignore"):
        rounded = float(np.float32(value)) if kind is Kind.F32 else float(value)
    return f"0x{struct.unpack('<Q', struct.pack('<d', rounded))[0]:016X}"


# -- the processor, and lanes that do not stand side by side ---------------------------------

REGISTER_BYTES = 32  # of AVX2
VECTOR_BYTES = 64  # of 16 singles or 8 doubles, in one register or several
MOST_SUMS = 12  # more gain nothing


@cache
def cpu_features() -> Mapping[str, bool]:
    """The processor's extensions by LLVM's names."""
    return dict(llvm.get_host_cpu_features())


def sums_in_registers() -> int:
    """Vectors of sums that fit the registers beside a vector of changes and a weight."""
    registers, each = count_registers()
    return min(MOST_SUMS, (registers - each - 1) // each)


def count_registers() -> tuple[int, int]:
    """How many the processor has for vectors, and how many of them one of ours takes."""
    features = cpu_features()
    if features.get("avx512f"):
        registers, size = 32, 64
    elif features.get("avx"):
        registers, size = 16, 32
    else:
        registers, size = (32 if features.get("neon") else 16), 16
    return registers, VECTOR_BYTES // size


def can_rearrange() -> bool:
    """Whether the processor has an instruction that rearranges a register."""
    return bool(cpu_features().get("avx2"))


def can_scale(v: Vectors, kind: Kind) -> bool:
    """Whether an instruction of the processor multiplies a vector of a kind by powers of two."""
    return v.lanes * kind.num_bytes == 64 and bool(cpu_features().get("avx512f"))


def scale(v: Vectors, kind: Kind, value: Value, whole: Value) -> Value:
    """Value · 2^whole, for whole numbers, rounded once."""
    typ, mask = v.type(kind), f"i{v.lanes}"
    name = f"@llvm.x86.avx512.mask.scalef.{'ps' if kind is Kind.F32 else 'pd'}.512"
    v.intrinsics.add(f"declare {typ} {name}({typ}, {typ}, {typ}, {mask}, i32 immarg)")
    rest = f"{typ} zeroinitializer, {mask} -1, i32 4"  # all lanes, rounded as usual
    return v.let(f"call {typ} {name}({typ} {value}, {typ} {whole}, {rest})")


def gather(v: Vectors, kind: Kind, pointer: Value, index: Value, mask: Value) -> Value:
    """The numbers at a vector of i64 indices, zeros where the mask does not hold."""
    typ, pointers = v.type(kind), f"<{v.lanes} x ptr>"
    place = v.let(f"getelementptr {kind.element}, ptr {pointer}, {v.type(Kind.I64)} {index}")
    name = f"@llvm.masked.gather.v{v.lanes}{kind}.v{v.lanes}p0"
    v.intrinsics.add(f"declare {typ} {name}({pointers}, i32, {v.type(Kind.I1)}, {typ})")
    rest = f"i32 4, {v.type(Kind.I1)} {mask}, {typ} zeroinitializer"
    return v.let(f"call {typ} {name}({pointers} {place}, {rest})")


def rearrange(v: Vectors, kind: Kind, value: Value, places: Value) -> Value:
    """value[places], lane by lane; each half of the lanes takes places of its half."""
    if (kind, v.lanes) == (Kind.F32, 16) and cpu_features().get("avx512f"):
        return _permute(v, "avx512.permvar.sf.512", 16, value, places)
    half_bytes = v.lanes // 2 * kind.num_bytes
    if half_bytes == REGISTER_BYTES and can_rearrange():
        return _permute_halves(v, kind, value, places)
    result = "poison"
    for lane in range(v.lanes):  # of kinds that are read once per vector, such as labels
        place = v.let(f"extractelement {v.type(Kind.I32)} {places}, i64 {lane}")
        number = v.let(f"extractelement {v.type(kind)} {value}, i32 {place}")
        element = f"{kind.element} {number}"
        result = v.let(f"insertelement {v.type(kind)} {result}, {element}, i64 {lane}")
    return result


def _permute(v: Vectors, name: str, lanes: int, value: Value, places: Value) -> Value:
    """An instruction of the processor's that rearranges singles within a register."""
    singles, numbers = f"<{lanes} x float>", f"<{lanes} x i32>"
    v.intrinsics.add(f"declare {singles} @llvm.x86.{name}({singles}, {numbers})")
    return v.let(f"call {singles} @llvm.x86.{name}({singles} {value}, {numbers} {places})")


def _permute_halves(v: Vectors, kind: Kind, value: Value, places: Value) -> Value:
    """Two registers, each rearranged as eight singles; a double moves as two of them."""
    num = v.lanes // 2
    typ, found = f"<{num} x {kind.element}>", []
    for half in (0, 1):
        own = _take_half(v, Kind.I32, places, half)
        if num == 4:
            own = _double_places(v, own)
        singles = v.let(f"bitcast {typ} {_take_half(v, kind, value, half)} to <8 x float>")
        moved = _permute(v, "avx2.permps", 8, singles, own)
        found.append(v.let(f"bitcast <8 x float> {moved} to {typ}"))
    order = ", ".join(f"i32 {lane}" for lane in range(v.lanes))
    both = f"{typ} {found[0]}, {typ} {found[1]}"
    return v.let(f"shufflevector {both}, <{v.lanes} x i32> <{order}>")


def _double_places(v: Vectors, places: Value) -> Value:
    """Places of doubles as those of singles: p becomes 2p and 2p + 1."""
    order = ", ".join(f"i32 {lane}" for lane in (0, 0, 1, 1, 2, 2, 3, 3))
    four = "<4 x i32>"
    twice = v.let(f"shufflevector {four} {places}, {four} poison, <8 x i32> <{order}>")
    first = v.let(f"shl <8 x i32> {twice}, <{', '.join(['i32 1'] * 8)}>")
    return v.let(f"add <8 x i32> {first}, <{', '.join(['i32 0, i32 1'] * 4)}>")


def _take_half(v: Vectors, kind: Kind, value: Value, half: int) -> Value:
    num = v.lanes // 2
    order = ", ".join(f"i32 {num * half + lane}" for lane in range(num))
    typ = v.type(kind)
    return v.let(f"shufflevector {typ} {value}, {typ} poison, <{num} x i32> <{order}>")
