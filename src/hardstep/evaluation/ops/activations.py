"""Activations, number by number."""

from hardstep.evaluation.fused.expressions import Expr, Fn, Graph, Kind
from hardstep.evaluation.ops.arithmetic import apply, clamp
from hardstep.evaluation.ops.elementwise import Operands, elementwise, read
from hardstep.evaluation.ops.operator import Operator


def _relu(g: Graph, args: Operands, kind: Kind) -> Expr:
    return clamp(g, [args[0], 0], kind)


def _leaky(g: Graph, args: Operands, kind: Kind) -> Expr:
    value, zero = read(g, args[0], kind), g.constant(0.0, kind)
    scaled = g.apply(Fn.MUL, value, read(g, args[1] if len(args) > 1 else 0.01, kind))
    return g.apply(Fn.SELECT, g.apply(Fn.GT, value, zero), value, scaled)


def _silu(g: Graph, args: Operands, kind: Kind) -> Expr:
    value = read(g, args[0], kind)
    below = g.apply(Fn.ADD, g.constant(1.0, kind), g.apply(Fn.EXP, g.apply(Fn.NEG, value)))
    return g.apply(Fn.DIV, value, below)


def _hardtanh(g: Graph, args: Operands, kind: Kind) -> Expr:
    return clamp(g, [*args, *(-1, 1)[len(args) - 1 :]], kind)


_OTHERS = "celu elu gelu hardsigmoid hardswish mish selu softplus threshold"
OPERATORS = (
    elementwise("relu", _relu),
    elementwise("leaky_relu", _leaky),
    elementwise("silu", _silu),
    elementwise("hardtanh", _hardtanh),
    elementwise("sigmoid", apply(Fn.SIGMOID)),
    elementwise("tanh", apply(Fn.TANH)),
    *map(elementwise, _OTHERS.split()),
    # Torch's resizes a result, and says so, unless all that it is given is batched.
    Operator("_prelu_kernel", needs_all_batched=True),
)
