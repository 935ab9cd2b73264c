"""Functions that no processor has, as instructions for vectors: exp, expm1, log, sigmoid, tanh.

Each is right to a few units in the last place, on every number, and rounds the same everywhere.
"""

import math
import struct
from collections.abc import Callable
from fractions import Fraction

from hardstep.evaluation.fused.emit_vectors import Value, Vectors, can_scale, scale
from hardstep.evaluation.fused.expressions import Fn, Kind

# e^y = 1 + y + y² (…) on |y| ≤ ln 2 / 2, the largest relative error as small as it can be:
# 2e-17 and 2e-8 of e^y − 1; 1e-7 of e^y where a sum follows in single precision. A shorter
# polynomial than Taylor's is as good there.
_EXPONENTIAL = {
    Kind.F32: [
        1.0, 1.0, 0.5, 0.16666576846, 0.04166655443769, 0.008363202971576, 0.001392621346633,
    ],
    Kind.F64: [
        1.0, 1.0, 0.50000000000000064578, 0.16666666666666696473, 0.041666666666562074824,
        0.0083333333332930867147, 0.0013888888936295143113, 0.00019841269987287077518,
        0.000024801499609843972114, 2.7557116560936372973e-6, 2.7628288381095853374e-7,
        2.5161455481040827191e-8,
    ],
}  # fmt: skip
_BELOW_SIGMOID = {
    Kind.F32: [1.0, 1.0, 0.4999923030950, 0.1666711538808, 0.04189033153037, 0.008312501338269],
    Kind.F64: _EXPONENTIAL[Kind.F64],
}
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


def _cut_exponent(v: Vectors, kind: Kind, x: Value, sign: int) -> Value:
    """A number, cut where the exponential of ±x does not change any more."""
    low, high = (-105.0, 88.8) if kind is Kind.F32 else (-746.0, 709.8)
    return _cut(v, kind, x, low, high) if sign > 0 else _cut(v, kind, x, -high, -low)


def _split_exponent(v: Vectors, kind: Kind, x: Value, sign: int) -> tuple[Value, Value]:
    """(n, r) with ±x = n ln 2 ± r, |r| ≤ ln 2 / 2."""
    whole = _count_ln2(v, kind, x, sign)
    coarse, fine = _split_ln2(kind)
    rest = v.fma(kind, whole, v.constant(-sign * coarse, kind), x)
    return whole, v.fma(kind, whole, v.constant(-sign * fine, kind), rest)


def _count_ln2(v: Vectors, kind: Kind, x: Value, scale: float) -> Value:
    """The whole number nearest to scale · x / ln 2."""
    return v.call("rint", kind, v.binary("fmul", kind, x, v.constant(scale / math.log(2), kind)))


def _scale_terms(coefficients: list[float], scale: float) -> list[float]:
    """The polynomial of scale · x, by its coefficients in x."""
    return [coefficient * scale**n for n, coefficient in enumerate(coefficients)]


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


def exp(v: Vectors, kind: Kind, x: Value) -> Value:
    """Exponential, to a unit in the last place or so."""
    whole, rest = _split_exponent(v, kind, _cut_exponent(v, kind, x, 1), 1)
    return _times_power(v, kind, _polynomial(v, kind, rest, _EXPONENTIAL[kind]), whole)


def expm1(v: Vectors, kind: Kind, x: Value) -> Value:
    """Exponential minus 1, without cancellation near zero."""
    whole, rest = _split_exponent(v, kind, _cut_exponent(v, kind, x, 1), 1)
    # At half the size: 2^n itself is infinite for the largest results that are not.
    result = _join_expm1(v, kind, rest, whole, 1.0, 0.5)
    return v.binary("fadd", kind, result, result)


def _join_expm1(
    v: Vectors, kind: Kind, rest: Value, whole: Value, scale: float, size: float
) -> Value:
    """Size · (2^whole · exp(scale · rest) − 1), for a rest near zero."""
    terms = _scale_terms(_EXPONENTIAL[kind], scale)[1:]
    small = v.binary("fmul", kind, rest, _polynomial(v, kind, rest, terms))
    unit = v.constant(size, kind)
    power = _times_power(v, kind, unit, whole)
    return v.fma(kind, power, small, v.binary("fsub", kind, power, unit))


def sigmoid(v: Vectors, kind: Kind, x: Value) -> Value:
    """1 / (1 + exp(−x))."""
    whole, rest = _split_exponent(v, kind, _cut_exponent(v, kind, x, -1), -1)
    terms = _scale_terms(_BELOW_SIGMOID[kind], -1.0)
    power = _times_power(v, kind, _polynomial(v, kind, rest, terms), whole)
    one = v.constant(1.0, kind)
    return v.binary("fdiv", kind, one, v.binary("fadd", kind, one, power))


def tanh(v: Vectors, kind: Kind, x: Value) -> Value:
    """expm1(2x) / (expm1(2x) + 2), with x cut where the answer is ±1 anyway."""
    x = _cut(v, kind, x, -20.0, 20.0)
    whole = _count_ln2(v, kind, x, 2.0)
    # What n ln 2 is rounded by does not show: where n is large, the answer is near ±1.
    rest = v.fma(kind, whole, v.constant(-math.log(2) / 2, kind), x)
    above = _join_expm1(v, kind, rest, whole, 2.0, 1.0)
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
