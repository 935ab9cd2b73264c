"""Functions that no processor has, as instructions for vectors: exp, expm1, log, sigmoid, tanh.

Each is right to a few units in the last place, on every number, and rounds the same everywhere.
"""

import math
import struct
from collections.abc import Callable
from fractions import Fraction

from hardstep.evaluation.fused.emit_vectors import Value, Vectors, can_scale, scale
from hardstep.evaluation.fused.expressions import Fn, Kind

_TINY = {Kind.F32: 2.0**-126, Kind.F64: 2.0**-1022}  # the least normal numbers


def _polynomial(v: Vectors, kind: Kind, x: Value, coefficients: list[float]) -> Value:
    """Horner's rule, the constant term first."""
    total = v.constant(coefficients[-1], kind)
    for coefficient in reversed(coefficients[:-1]):
        total = v.fma(kind, total, x, v.constant(coefficient, kind))
    return total


def _cut(v: Vectors, kind: Kind, x: Value, low: float, high: float) -> Value:
    """The nearest number between two; not-a-number stays."""
    for limit, predicate in ((low, "olt"), (high, "ogt")):
        edge = v.constant(limit, kind)
        outside = v.compare(f"fcmp {predicate}", kind, x, edge)
        x = v.select(outside, kind, edge, x)
    return x


def _cut_exponent(v: Vectors, kind: Kind, x: Value, scale: float) -> Value:
    """Scale · x, cut where its exponential does not change any more."""
    if scale != 1.0:
        x = v.binary("fmul", kind, x, v.constant(scale, kind))
    return _cut(v, kind, x, *((-105.0, 88.8) if kind is Kind.F32 else (-746.0, 709.8)))


def _split_exponent(v: Vectors, kind: Kind, x: Value) -> tuple[Value, Value]:
    """(n, r) with x = n ln 2 + r, |r| ≤ ln 2 / 2."""
    scaled = v.binary("fmul", kind, x, v.constant(1 / math.log(2), kind))
    whole = v.call("rint", kind, scaled)
    coarse, fine = _split_ln2(kind)
    rest = v.fma(kind, whole, v.constant(-coarse, kind), x)
    return whole, v.fma(kind, whole, v.constant(-fine, kind), rest)


def _times_power(v: Vectors, kind: Kind, value: Value, whole: Value) -> Value:
    """Value · 2^whole, in two halves so that neither factor over- or underflows."""
    if can_scale(v, kind):
        return scale(v, kind, value, whole)
    half = v.call("floor", kind, v.binary("fmul", kind, whole, v.constant(0.5, kind)))
    other = v.binary("fsub", kind, whole, half)
    for part in (half, other):
        value = v.binary("fmul", kind, value, _power_of_two(v, kind, part))
    return value


def _power_of_two(v: Vectors, kind: Kind, whole: Value) -> Value:
    integer, bias, shift = (Kind.I32, 127, 23) if kind is Kind.F32 else (Kind.I64, 1023, 52)
    # Converting NaN is undefined; it comes back through the other factor.
    zero = v.constant(0.0, kind)
    whole = v.select(v.compare("fcmp ord", kind, whole, zero), kind, whole, zero)
    exponent = v.convert("fptosi", whole, kind, integer)
    exponent = v.binary("add", integer, exponent, v.constant(bias, integer))
    bits = v.binary("shl", integer, exponent, v.constant(shift, integer))
    return v.convert("bitcast", bits, integer, kind)


def exp(v: Vectors, kind: Kind, x: Value, scale: float = 1.0) -> Value:
    """Exponential of scale · x, to a unit in the last place or so."""
    whole, rest = _split_exponent(v, kind, _cut_exponent(v, kind, x, scale))
    terms = [1 / math.factorial(n) for n in range(8 if kind is Kind.F32 else 14)]
    return _times_power(v, kind, _polynomial(v, kind, rest, terms), whole)


def expm1(v: Vectors, kind: Kind, x: Value) -> Value:
    """Exponential minus 1, without cancellation near zero."""
    return _expm1(v, kind, _cut_exponent(v, kind, x, 1.0))


def _expm1(v: Vectors, kind: Kind, x: Value) -> Value:
    whole, rest = _split_exponent(v, kind, x)
    terms = [1 / math.factorial(n) for n in range(1, 8 if kind is Kind.F32 else 14)]
    small = v.binary("fmul", kind, rest, _polynomial(v, kind, rest, terms))
    # At half the size: 2^n itself is infinite for the largest results that are not.
    half = v.constant(0.5, kind)
    power = _times_power(v, kind, half, whole)
    result = v.fma(kind, power, small, v.binary("fsub", kind, power, half))
    return v.binary("fadd", kind, result, result)


def sigmoid(v: Vectors, kind: Kind, x: Value) -> Value:
    """1 / (1 + exp(−x))."""
    one = v.constant(1.0, kind)
    below = v.binary("fadd", kind, one, exp(v, kind, x, -1.0))
    return v.binary("fdiv", kind, one, below)


def tanh(v: Vectors, kind: Kind, x: Value) -> Value:
    """expm1(2x) / (expm1(2x) + 2), with x cut where the answer is ±1 anyway."""
    x = _cut(v, kind, x, -20.0, 20.0)
    above = _expm1(v, kind, v.binary("fmul", kind, x, v.constant(2.0, kind)))
    return v.binary("fdiv", kind, above, v.binary("fadd", kind, above, v.constant(2.0, kind)))


def log(v: Vectors, kind: Kind, x: Value) -> Value:
    """Natural logarithm: x = m 2^n, log m = 2 artanh((m − 1)/(m + 1))."""
    integer, bias, shift = (Kind.I32, 127, 23) if kind is Kind.F32 else (Kind.I64, 1023, 52)
    tiny = v.constant(_TINY[kind], kind)
    subnormal = v.compare("fcmp olt", kind, x, tiny)
    raised = v.binary("fmul", kind, x, v.constant(2.0 ** (shift + 1), kind))
    y = v.select(subnormal, kind, raised, x)
    bits = v.convert("bitcast", y, kind, integer)
    # Center the mantissa on 1: subtract the bits of √½ before taking the exponent.
    root = _bits(math.sqrt(0.5), kind)
    offset = v.binary("sub", integer, bits, v.constant(root, integer))
    exponent = v.binary("ashr", integer, offset, v.constant(shift, integer))
    back = v.binary("shl", integer, exponent, v.constant(shift, integer))
    mantissa = v.convert("bitcast", v.binary("sub", integer, bits, back), integer, kind)
    whole = v.convert("sitofp", exponent, integer, kind)
    lowered = v.binary("fsub", kind, whole, v.constant(float(shift + 1), kind))
    whole = v.select(subnormal, kind, lowered, whole)
    logarithm = _log_near_one(v, kind, mantissa, whole)
    return _at_log_limits(v, kind, x, logarithm)


def _log_near_one(v: Vectors, kind: Kind, mantissa: Value, whole: Value) -> Value:
    one = v.constant(1.0, kind)
    f = v.binary("fsub", kind, mantissa, one)
    s = v.binary("fdiv", kind, f, v.binary("fadd", kind, mantissa, one))
    square = v.binary("fmul", kind, s, s)
    series = [2 / (2 * n + 1) for n in range(1, 6 if kind is Kind.F32 else 12)]
    tail = v.binary("fmul", kind, square, _polynomial(v, kind, square, series))
    # log m = f − s (f − tail): f is exact, so little is lost near m = 1.
    near = v.binary("fsub", kind, f, tail)
    near = v.binary("fsub", kind, f, v.binary("fmul", kind, s, near))
    coarse, fine = _split_ln2(kind)
    near = v.fma(kind, whole, v.constant(fine, kind), near)
    return v.fma(kind, whole, v.constant(coarse, kind), near)


def _at_log_limits(v: Vectors, kind: Kind, x: Value, logarithm: Value) -> Value:
    zero, infinity = v.constant(0.0, kind), v.constant(math.inf, kind)
    result = v.select(v.compare("fcmp oeq", kind, x, infinity), kind, infinity, logarithm)
    minus = v.constant(-math.inf, kind)
    result = v.select(v.compare("fcmp oeq", kind, x, zero), kind, minus, result)
    bad = v.compare("fcmp ult", kind, x, zero)
    return v.select(bad, kind, v.constant(math.nan, kind), result)


def _bits(value: float, kind: Kind) -> int:
    pack, unpack = ("<f", "<i") if kind is Kind.F32 else ("<d", "<q")
    return int(struct.unpack(unpack, struct.pack(pack, value))[0])


def _split_ln2(kind: Kind) -> tuple[float, float]:
    """A sum of two numbers that is ln 2; multiples of the first are exact."""
    bits = 12 if kind is Kind.F32 else 32
    coarse = float(Fraction(math.floor(math.log(2) * 2**bits), 2**bits))
    digits = Fraction("0.693147180559945309417232121458176568")
    return coarse, float(digits - Fraction(coarse))


FUNCTIONS: dict[Fn, Callable[[Vectors, Kind, Value], Value]] = {
    Fn.EXP: exp,
    Fn.EXPM1: expm1,
    Fn.LOG: log,
    Fn.SIGMOID: sigmoid,
    Fn.TANH: tanh,
}
