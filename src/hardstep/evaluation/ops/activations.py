"""Activations, number by number."""

import math
from dataclasses import replace

from hardstep.evaluation.fused.expressions import Fn, Number
from hardstep.evaluation.ops.arithmetic import apply
from hardstep.evaluation.ops.elementwise import elementwise
from hardstep.evaluation.ops.formulas import (
    Term,
    erf,
    exp,
    expm1,
    formula,
    log1p,
    maximum,
    minimum,
    tanh,
    where,
)


def _relu(x: Term) -> Term:
    return maximum(x, 0)


def _leaky_relu(x: Term, slope: Term | Number = 0.01) -> Term:
    return where(x > 0, x, x * slope)


def _hardtanh(x: Term, low: Number = -1, high: Number = 1) -> Term:
    return minimum(maximum(x, low), high)


def _hardsigmoid(x: Term) -> Term:
    return minimum(maximum(x + 3, 0), 6) / 6


def _hardswish(x: Term) -> Term:
    return x * minimum(maximum(x + 3, 0), 6) / 6


def _silu(x: Term) -> Term:
    return x / (1 + exp(-x))


def _gelu(x: Term, approximate: str = "none") -> Term:
    if approximate == "tanh":
        inner = math.sqrt(2 / math.pi) * (x + 0.044715 * (x * x * x))
        return 0.5 * x * (1 + tanh(inner))
    return 0.5 * x * (1 + erf(x * math.sqrt(0.5)))


def _elu(x: Term, alpha: Number = 1, scale: Number = 1, input_scale: Number = 1) -> Term:
    return where(x > 0, x * scale, expm1(x * input_scale) * (alpha * scale))


def _celu(x: Term, alpha: Number = 1) -> Term:
    return _elu(x, alpha, input_scale=1 / alpha)


def _softplus(x: Term, beta: Number = 1, threshold: Number = 20) -> Term:
    scaled = x * beta
    return where(scaled > threshold, x, log1p(exp(scaled)) / beta)


def _mish(x: Term) -> Term:
    return x * tanh(log1p(exp(x)))


def _threshold(x: Term, threshold: Number, value: Number) -> Term:
    return where(x <= threshold, value, x)


def _hardshrink(x: Term, lambd: Number = 0.5) -> Term:
    return where(abs(x) <= lambd, 0, x)


def _softshrink(x: Term, lambd: Number = 0.5) -> Term:
    return where(x > lambd, x - lambd, where(x < -lambd, x + lambd, x * 0))


OPERATORS = (
    elementwise("relu", formula(_relu)),
    elementwise("leaky_relu", formula(_leaky_relu)),
    # Torch's resizes a result, and says so, unless all that it is given is batched.
    replace(elementwise("_prelu_kernel", formula(_leaky_relu)), needs_all_batched=True),
    elementwise("hardtanh", formula(_hardtanh)),
    elementwise("hardsigmoid", formula(_hardsigmoid)),
    elementwise("hardswish", formula(_hardswish)),
    elementwise("sigmoid", apply(Fn.SIGMOID)),
    elementwise("tanh", apply(Fn.TANH)),
    elementwise("silu", formula(_silu)),
    elementwise("gelu", formula(_gelu), keyword="approximate"),
    elementwise("elu", formula(_elu)),
    elementwise("celu", formula(_celu)),
    elementwise("softplus", formula(_softplus)),
    elementwise("mish", formula(_mish)),
    elementwise("threshold", formula(_threshold)),
    elementwise("hardshrink", formula(_hardshrink)),
    elementwise("softshrink", formula(_softshrink)),
)
