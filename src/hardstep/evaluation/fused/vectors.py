"""LLVM assembly for vectors of lanes: a few instructions, and the functions made of them.

Text instead of a builder: it is the key under which compiled kernels are kept, and it can be
read. Nothing here allows LLVM to reorder or contract arithmetic, so a kernel rounds as written;
`fma` appears where we write it.
"""

import math
import struct
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

ELEMENT = {"f32": "float", "f64": "double", "i1": "i1", "i64": "i64", "i32": "i32", "i8": "i8"}
BYTES = {"f32": 4, "f64": 8, "i64": 8, "i1": 1}  # in memory
Value = str  # an SSA name


@dataclass(frozen=True)
class Packed:
    """Where lanes come from that do not stand side by side."""

    rows: Value  # i32 per lane: its row within the block
    candidates: Value  # i64 per lane


class Vectors:
    """Writes the instructions of one function, for a fixed number of lanes."""

    def __init__(self, lanes: int) -> None:
        self.lanes = lanes
        self.packed: Packed | None = None
        self.head: list[str] = []  # what belongs in the entry block: constants, accumulators
        self.body: list[str] = []
        self.count = 0
        self.constants: dict[tuple[str, str], Value] = {}
        self.intrinsics: set[str] = set()

    # -- text -----------------------------------------------------------------------------

    def type(self, kind: str) -> str:
        """The vector type of a kind."""
        return f"<{self.lanes} x {ELEMENT[kind]}>"

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

    def constant(self, value: float | int | bool, kind: str) -> Value:
        """The number in every lane; made once per function."""
        text = literal(value, kind)
        key = (kind, text)
        if key not in self.constants:
            element = f"{ELEMENT[kind]} {text}"
            self.constants[key] = f"<{', '.join([element] * self.lanes)}>"
        return self.constants[key]

    def splat(self, scalar: Value, kind: str) -> Value:
        """A scalar in every lane."""
        first = self.let(f"insertelement {self.type(kind)} poison, {ELEMENT[kind]} {scalar}, i64 0")
        mask = f"<{self.lanes} x i32> zeroinitializer"
        return self.let(
            f"shufflevector {self.type(kind)} {first}, {self.type(kind)} poison, {mask}"
        )

    def variable(self, kind: str, scalar: bool = False) -> Value:
        """A place to accumulate in; LLVM turns it into a register."""
        name = self.name()
        element = ELEMENT[kind] if scalar else self.type(kind)
        self.head.append(f"  {name} = alloca {element}")
        return name

    def load(self, kind: str, address: Value, align: int) -> Value:
        """Lanes from memory; truth values are bytes there."""
        if kind == "i1":
            raw = self.let(f"load <{self.lanes} x i8>, ptr {address}, align 1")
            zero = f"<{self.lanes} x i8> zeroinitializer"
            return self.let(f"icmp ne {zero}, {raw}")
        return self.let(f"load {self.type(kind)}, ptr {address}, align {align}")

    def store(self, kind: str, value: Value, address: Value, align: int) -> None:
        """Lanes to memory."""
        self.line(f"store {self.type(kind)} {value}, ptr {address}, align {align}")

    def offset(self, kind: str, pointer: Value, index: Value) -> Value:
        """The address of an element."""
        element = "i8" if kind == "i1" else ELEMENT[kind]
        return self.let(f"getelementptr {element}, ptr {pointer}, i64 {index}")

    # -- arithmetic -----------------------------------------------------------------------

    def binary(self, instruction: str, kind: str, a: Value, b: Value) -> Value:
        """Such as `fadd` or `and`."""
        return self.let(f"{instruction} {self.type(kind)} {a}, {b}")

    def compare(self, predicate: str, kind: str, a: Value, b: Value) -> Value:
        """Truth values; `predicate` such as `fcmp oge` or `icmp eq`."""
        return self.let(f"{predicate} {self.type(kind)} {a}, {b}")

    def select(self, condition: Value, kind: str, a: Value, b: Value) -> Value:
        """Where the condition holds the first, else the second."""
        left, right = f"{self.type(kind)} {a}", f"{self.type(kind)} {b}"
        return self.let(f"select {self.type('i1')} {condition}, {left}, {right}")

    def convert(self, instruction: str, value: Value, old: str, new: str) -> Value:
        """Such as `fpext`, `sitofp`, `bitcast`."""
        return self.let(f"{instruction} {self.type(old)} {value} to {self.type(new)}")

    def call(self, intrinsic: str, kind: str, *values: Value) -> Value:
        """An LLVM intrinsic of one kind, such as `floor`."""
        typ = self.type(kind)
        name = f"@llvm.{intrinsic}.v{self.lanes}{kind}"
        self.intrinsics.add(f"declare {typ} {name}({', '.join([typ] * len(values))})")
        return self.let(f"call {typ} {name}({', '.join(f'{typ} {v}' for v in values)})")

    def fma(self, kind: str, a: Value, b: Value, c: Value) -> Value:
        """The sum a·b + c, rounded once."""
        return self.call("fma", kind, a, b, c)

    def any(self, condition: Value) -> Value:
        """Whether a lane holds true, a scalar."""
        integer = f"i{self.lanes}"
        bits = self.let(f"bitcast {self.type('i1')} {condition} to {integer}")
        return self.let(f"icmp ne {integer} {bits}, 0")

    # -- functions ------------------------------------------------------------------------

    def polynomial(self, kind: str, x: Value, coefficients: list[float]) -> Value:
        """Horner's rule, the constant term first."""
        total = self.constant(coefficients[-1], kind)
        for coefficient in reversed(coefficients[:-1]):
            total = self.fma(kind, total, x, self.constant(coefficient, kind))
        return total

    def _reduced(self, kind: str, x: Value, scale: float) -> tuple[Value, Value]:
        """(n, r) with scale·x = n ln 2 + r, |r| ≤ ln 2 / 2; x is cut where nothing changes."""
        low, high = (-105.0, 88.8) if kind == "f32" else (-746.0, 709.8)
        if scale != 1.0:
            x = self.binary("fmul", kind, x, self.constant(scale, kind))
        for limit, predicate in ((low, "olt"), (high, "ogt")):
            edge = self.constant(limit, kind)
            outside = self.compare(f"fcmp {predicate}", kind, x, edge)
            x = self.select(outside, kind, edge, x)
        scaled = self.binary("fmul", kind, x, self.constant(1 / math.log(2), kind))
        whole = self.call("rint", kind, scaled)
        coarse, fine = _split_ln2(kind)
        rest = self.fma(kind, whole, self.constant(-coarse, kind), x)
        return whole, self.fma(kind, whole, self.constant(-fine, kind), rest)

    def _times_power(self, kind: str, value: Value, whole: Value) -> Value:
        """Value · 2^whole, in two halves so that neither factor over- or underflows."""
        half = self.call("floor", kind, self.binary("fmul", kind, whole, self.constant(0.5, kind)))
        other = self.binary("fsub", kind, whole, half)
        for part in (half, other):
            value = self.binary("fmul", kind, value, self._power_of_two(kind, part))
        return value

    def _power_of_two(self, kind: str, whole: Value) -> Value:
        integer, bias, shift = ("i32", 127, 23) if kind == "f32" else ("i64", 1023, 52)
        # Converting NaN is undefined; it comes back through the other factor.
        zero = self.constant(0.0, kind)
        whole = self.select(self.compare("fcmp ord", kind, whole, zero), kind, whole, zero)
        exponent = self.convert("fptosi", whole, kind, integer)
        exponent = self.binary("add", integer, exponent, self.constant(bias, integer))
        bits = self.binary("shl", integer, exponent, self.constant(shift, integer))
        return self.convert("bitcast", bits, integer, kind)

    def exp(self, kind: str, x: Value, scale: float = 1.0) -> Value:
        """Exponential of scale · x, to a unit in the last place or so."""
        whole, rest = self._reduced(kind, x, scale)
        terms = [1 / math.factorial(n) for n in range(8 if kind == "f32" else 14)]
        return self._times_power(kind, self.polynomial(kind, rest, terms), whole)

    def expm1(self, kind: str, x: Value, scale: float = 1.0) -> Value:
        """Exponential of scale · x, minus 1, without cancellation near zero."""
        whole, rest = self._reduced(kind, x, scale)
        terms = [1 / math.factorial(n) for n in range(1, 8 if kind == "f32" else 14)]
        small = self.binary("fmul", kind, rest, self.polynomial(kind, rest, terms))
        # At half the size: 2^n itself is infinite for the largest results that are not.
        half = self.constant(0.5, kind)
        power = self._times_power(kind, half, whole)
        result = self.fma(kind, power, small, self.binary("fsub", kind, power, half))
        return self.binary("fadd", kind, result, result)

    def sigmoid(self, kind: str, x: Value) -> Value:
        """1 / (1 + exp(−x))."""
        one = self.constant(1.0, kind)
        below = self.binary("fadd", kind, one, self.exp(kind, x, -1.0))
        return self.binary("fdiv", kind, one, below)

    def tanh(self, kind: str, x: Value) -> Value:
        """expm1(2x) / (expm1(2x) + 2), with x cut where the answer is ±1 anyway."""
        edge = 20.0
        for limit, predicate in ((-edge, "olt"), (edge, "ogt")):
            bound = self.constant(limit, kind)
            x = self.select(self.compare(f"fcmp {predicate}", kind, x, bound), kind, bound, x)
        above = self.expm1(kind, x, 2.0)
        return self.binary(
            "fdiv", kind, above, self.binary("fadd", kind, above, self.constant(2.0, kind))
        )

    def log(self, kind: str, x: Value) -> Value:
        """Natural logarithm: x = m 2^n, log m = 2 artanh((m − 1)/(m + 1))."""
        integer, bias, shift = ("i32", 127, 23) if kind == "f32" else ("i64", 1023, 52)
        tiny = self.constant(_TINY[kind], kind)
        subnormal = self.compare("fcmp olt", kind, x, tiny)
        raised = self.binary("fmul", kind, x, self.constant(2.0 ** (shift + 1), kind))
        y = self.select(subnormal, kind, raised, x)
        bits = self.convert("bitcast", y, kind, integer)
        # Centre the mantissa on 1: subtract the bits of √½ before taking the exponent.
        root = _bits(math.sqrt(0.5), kind)
        offset = self.binary("sub", integer, bits, self.constant(root, integer))
        exponent = self.binary("ashr", integer, offset, self.constant(shift, integer))
        back = self.binary("shl", integer, exponent, self.constant(shift, integer))
        mantissa = self.convert("bitcast", self.binary("sub", integer, bits, back), integer, kind)
        whole = self.convert("sitofp", exponent, integer, kind)
        lowered = self.binary("fsub", kind, whole, self.constant(float(shift + 1), kind))
        whole = self.select(subnormal, kind, lowered, whole)
        logarithm = self._log_near_one(kind, mantissa, whole)
        return self._log_limits(kind, x, logarithm)

    def _log_near_one(self, kind: str, mantissa: Value, whole: Value) -> Value:
        one = self.constant(1.0, kind)
        f = self.binary("fsub", kind, mantissa, one)
        s = self.binary("fdiv", kind, f, self.binary("fadd", kind, mantissa, one))
        square = self.binary("fmul", kind, s, s)
        series = [2 / (2 * n + 1) for n in range(1, 6 if kind == "f32" else 12)]
        tail = self.binary("fmul", kind, square, self.polynomial(kind, square, series))
        # log m = f − s (f − tail): f is exact, so little is lost near m = 1.
        near = self.binary("fsub", kind, f, tail)
        near = self.binary("fsub", kind, f, self.binary("fmul", kind, s, near))
        coarse, fine = _split_ln2(kind)
        near = self.fma(kind, whole, self.constant(fine, kind), near)
        return self.fma(kind, whole, self.constant(coarse, kind), near)

    def _log_limits(self, kind: str, x: Value, logarithm: Value) -> Value:
        zero, infinity = self.constant(0.0, kind), self.constant(math.inf, kind)
        result = self.select(self.compare("fcmp oeq", kind, x, infinity), kind, infinity, logarithm)
        minus = self.constant(-math.inf, kind)
        result = self.select(self.compare("fcmp oeq", kind, x, zero), kind, minus, result)
        bad = self.compare("fcmp ult", kind, x, zero)
        return self.select(bad, kind, self.constant(math.nan, kind), result)


_TINY = {"f32": 2.0**-126, "f64": 2.0**-1022}  # the least normal numbers


def _bits(value: float, kind: str) -> int:
    pack, unpack = ("<f", "<i") if kind == "f32" else ("<d", "<q")
    return int(struct.unpack(unpack, struct.pack(pack, value))[0])


def _split_ln2(kind: str) -> tuple[float, float]:
    """A sum of two numbers that is ln 2; multiples of the first are exact."""
    bits = 12 if kind == "f32" else 32
    coarse = float(Fraction(math.floor(math.log(2) * 2**bits), 2**bits))
    digits = Fraction("0.693147180559945309417232121458176568")
    return coarse, float(digits - Fraction(coarse))


def literal(value: float | int | bool, kind: str) -> str:
    """A number as LLVM writes it; floats as the bits of a double."""
    if kind == "i1":
        return "true" if value else "false"
    if kind not in _TINY:
        return str(int(value))
    with np.errstate(over="ignore"):
        rounded = float(np.float32(value)) if kind == "f32" else float(value)
    return f"0x{struct.unpack('<Q', struct.pack('<d', rounded))[0]:016X}"
