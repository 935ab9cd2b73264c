"""What compiled kernels compute: the vector functions, and every operation they know.

Functions are held against a truth of more digits, in units in the last place. Operations stand
in models with one hidden layer, whose losses must be those of plain forward passes, and must
come from a kernel where the table says so.
"""

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from hardstep.evaluation import Problem
from hardstep.evaluation.fused.compile import run_kernel
from hardstep.evaluation.fused.emit_functions import FUNCTIONS
from hardstep.evaluation.fused.emit_vectors import Vectors
from hardstep.evaluation.fused.expressions import Fn, Kind
from hardstep.evaluation.ops import REGISTRY
from hardstep.evaluation.trace.record import record
from hardstep.nn import build
from hardstep.subspaces import LayerWise, RowWise, trainable

from .random_models import Hand
from .test_incremental import check_losses, compare

# -- functions of vectors ------------------------------------------------------------------

KINDS = {Kind.F32: np.float32, Kind.F64: np.float64}
WIDER = {Kind.F32: np.float64, Kind.F64: np.longdouble}
LANES = 8
# The worst error in units in the last place; measured: 0.8, 2.1, 1.1, 2.0, 2.8.
MOST_ULPS = {Fn.EXP: 1.5, Fn.EXPM1: 3, Fn.LOG: 1.5, Fn.SIGMOID: 3, Fn.TANH: 4}


def applied(function: Fn, kind: Kind, values: np.ndarray) -> np.ndarray:
    """A kernel of our own, which does nothing but apply one function."""
    v = Vectors(LANES)
    source, target = (v.offset(kind, pointer, "%r") for pointer in ("%p0", "%p1"))
    v.store(kind, FUNCTIONS[function](v, kind, v.load(kind, source, 4)), target, 4)
    body, declared = "\n".join(v.body), "\n".join(sorted(v.intrinsics))
    text = f"""
define void @run(ptr %tables, i64 %first, i64 %last, i64 %rows, i64 %stride, ptr %scratch) {{
entry:
  %p0 = load ptr, ptr %tables
  %second = getelementptr ptr, ptr %tables, i64 1
  %p1 = load ptr, ptr %second
  br label %loop
loop:
  %r = phi i64 [ 0, %entry ], [ %next, %loop ]
{body}
  %next = add i64 %r, {LANES}
  %done = icmp sge i64 %next, %rows
  br i1 %done, label %end, label %loop
end:
  ret void
}}
{declared}
"""
    padded = torch.from_numpy(np.append(values, np.ones(-len(values) % LANES, KINDS[kind])))
    result = torch.empty_like(padded)
    run_kernel(text, [padded, result], 1, len(padded), len(padded), 0)
    return result.numpy()[: len(values)]


def everywhere(kind: Kind) -> np.ndarray:
    """Numbers of every size and sign, subnormal ones too, and many where the functions turn."""
    draw = np.random.default_rng(0)
    bits = draw.integers(0, 2 ** (32 if kind is Kind.F32 else 64), 40_000, dtype=np.uint64)
    scattered = bits.astype(np.uint32 if kind is Kind.F32 else np.uint64).view(KINDS[kind])
    edges = (88.4, 88.72, 87.3, 103.9, 709.4, 709.78, 708.4, 745.1, 0.3466, 20.0, 1.0, 0.5)
    near = [edge * (1 + 1e-3 * draw.standard_normal(300)) for edge in edges]
    wide = [draw.uniform(-scale, scale, 5_000) for scale in (1e-3, 1, 30, 110, 750)]
    one = [1 + draw.standard_normal(3_000) * scale for scale in (1e-6, 1e-3, 0.1)]
    rest = np.concatenate([*near, *(-part for part in near), *wide, *one]).astype(KINDS[kind])
    values = np.concatenate([scattered, rest])
    return values[np.isfinite(values)]


def truth(function: Fn, kind: Kind, values: np.ndarray) -> np.ndarray:
    """The function in a type with more digits."""
    x = values.astype(WIDER[kind])
    with np.errstate(all="ignore"):
        if function is Fn.SIGMOID:
            return np.where(x > 0, 1 / (1 + np.exp(-x)), np.exp(x) / (1 + np.exp(x)))
        return getattr(np, function.value)(x)


@pytest.mark.skipif(
    np.finfo(np.longdouble).eps == np.finfo(np.float64).eps, reason="nothing longer than a double"
)
@pytest.mark.parametrize("kind", KINDS, ids=str)
@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda function: function.value)
def test_functions_are_right_to_a_few_units_in_the_last_place(function, kind):
    values = everywhere(kind)
    if function is Fn.LOG:
        values = np.abs(values[values != 0])
    dtype, found = KINDS[kind], applied(function, kind, values)
    expected = truth(function, kind, values)
    with np.errstate(over="ignore", under="ignore"):
        rounded = expected.astype(dtype)
    with np.errstate(invalid="ignore"):
        unit = np.spacing(np.abs(np.where(np.isfinite(rounded), rounded, 1)))
        error = np.abs(found.astype(WIDER[kind]) - expected) / unit
    if function is Fn.SIGMOID:
        # Below the least normal number exp(-x) has overflowed, as it has in torch.
        tiny = np.finfo(dtype).tiny
        small = expected < tiny
        assert np.all(np.abs(found[small] - expected[small]) <= tiny)
        error[small] = 0
    # Within a unit of the largest number, whether it is infinite is a matter of rounding.
    large = np.abs(expected) > np.finfo(dtype).max * (1 - 2 * np.finfo(dtype).eps)
    assert np.all(np.isinf(found[large]) | (np.abs(found[large]) > 0.99 * np.finfo(dtype).max))
    assert np.all(np.isfinite(found[~large]))
    assert float(error[~large].max()) <= MOST_ULPS[function]


@pytest.mark.parametrize("kind", KINDS, ids=str)
@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda function: function.value)
def test_functions_treat_special_values_as_torch_does(function, kind):
    tiny = float(np.finfo(KINDS[kind]).smallest_subnormal)
    largest = float(np.finfo(KINDS[kind]).max)
    special = [0.0, -0.0, math.inf, -math.inf, math.nan, largest, -largest, tiny, -tiny, 1.0]
    values = np.array(special, dtype=KINDS[kind])
    found = torch.from_numpy(applied(function, kind, values))
    expected = getattr(torch, function.value)(torch.from_numpy(values))
    torch.testing.assert_close(found, expected, rtol=1e-6, atol=tiny, equal_nan=True)


# -- models with one hidden layer ----------------------------------------------------------

# One unit per candidate in double precision, and a whole layer in single precision.
FORMS = ((RowWise(2), torch.float64), (LayerWise(1), torch.float32))
INPUTS, HIDDEN, CLASSES = 6, 9, 4  # particles of three coordinates never straddle a weight row


def check_fused(problem, names, subspace, dtype):
    """Losses are right, and all of them come from kernels."""
    evaluator, _ = check_losses(problem, names, subspace, dtype)
    assert set(evaluator.notes.values()) == {"fused"}


def problem_with(middle, dtype=torch.float64, batch=11, seed=0, loss=F.cross_entropy):
    """Two linear layers with a function of (hidden values, unchanged values) between them.

    In single precision they have no bias: there, dense directions would compile four kernels.
    """
    bias = dtype == torch.float64

    def forward(model, x):
        return model.b(middle(model.a(x), x @ model.fixed))

    def make():
        first, second = (INPUTS, HIDDEN), (HIDDEN, CLASSES)
        model = Hand(forward, a=nn.Linear(*first, bias=bias), b=nn.Linear(*second, bias=bias))
        model.register_buffer("fixed", torch.randn(INPUTS, HIDDEN))
        return model

    model = build(make, seed).to(dtype)
    generator = torch.Generator().manual_seed(seed)
    inputs = 2 * torch.randn(batch, INPUTS, generator=generator, dtype=dtype)
    return Problem(model, inputs, torch.arange(batch) % CLASSES, loss)


# Every element-wise operator with an expression, as an activation of hidden values h beside
# unchanged values x of the same shape. All of these must be fused.
ACTIVATIONS = {
    "add": lambda h, x: torch.add(h + 0.5, x, alpha=0.3),
    "sub": lambda h, x: torch.sub(x, h, alpha=2),
    "rsub": lambda h, x: 1.0 - h,
    "mul": lambda h, x: 1.7 * h * x * h,
    "div": lambda h, x: h / 3 + x / (h.abs() + 1) + torch.div(h, 0.3, rounding_mode="trunc"),
    "maximum": lambda h, x: torch.maximum(h, x) + torch.maximum(h > 0.5, x > 0) * x,
    "minimum": lambda h, x: torch.minimum(x, h) + torch.minimum(h > 0.5, x > 0) * x,
    "remainder": lambda h, x: h * ((4 * h).round().long() % 3),
    "addcmul": lambda h, x: torch.addcmul(x, h, h, value=0.4),
    "addcdiv": lambda h, x: torch.addcdiv(x, h, h.abs() + 1, value=0.4),
    "lerp": lambda h, x: torch.lerp(h, x, 0.3) + torch.lerp(x, h, 0.8) + torch.lerp(h, x, h),
    "pow": lambda h, x: h**2 + h**3 + (h.abs() + 0.1) ** 0.5 + h**1,
    "reciprocal": lambda h, x: torch.reciprocal(h.abs() + 0.5),
    "rsqrt": lambda h, x: torch.rsqrt(h.abs() + 0.5),
    "silu": lambda h, x: F.silu(h),
    "relu": lambda h, x: F.relu(h),
    "leaky_relu": lambda h, x: F.leaky_relu(h, 0.2),
    "hardtanh": lambda h, x: F.hardtanh(h) + F.hardtanh(h, -0.3, 2.0),
    "_prelu_kernel": lambda h, x: F.prelu(h, torch.full((HIDDEN,), 0.2, dtype=h.dtype)),
    "hardsigmoid": lambda h, x: F.hardsigmoid(2 * h),
    "hardswish": lambda h, x: F.hardswish(2 * h),
    "gelu": lambda h, x: F.gelu(h) + F.gelu(2 * h, approximate="tanh"),
    "elu": lambda h, x: F.elu(h, 0.3) + F.selu(h),
    "celu": lambda h, x: F.celu(h, 0.7),
    "softplus": lambda h, x: F.softplus(h) + F.softplus(9 * h, beta=2),
    "mish": lambda h, x: F.mish(h),
    "threshold": lambda h, x: F.threshold(h, 0.1, -0.7),
    "hardshrink": lambda h, x: F.hardshrink(h, 0.4),
    "softshrink": lambda h, x: F.softshrink(h, 0.4),
    "clamp": lambda h, x: h.clamp(-0.2, 0.9) + h.clamp(max=0.1) + torch.clamp(h, x, x + 1),
    "clamp_min": lambda h, x: torch.clamp_min(h, 0.2),
    "clamp_max": lambda h, x: torch.clamp_max(h, 0.2),
    "where": lambda h, x: torch.where(h > x, h, 0.5) + torch.where(x > 0, h, x),
    "masked_fill": lambda h, x: h.masked_fill(h > 1, -2.0) + h.masked_fill(x > 0, 0.3),
    "sign": lambda h, x: torch.sign(h) * x,
    "sgn": lambda h, x: torch.sgn(h) * x,
    "copy": lambda h, x: torch.zeros_like(h).copy_(h) * x,
    "round": lambda h, x: torch.round(3 * h) / 3,
    "frac": lambda h, x: torch.frac(3 * h),
    "heaviside": lambda h, x: torch.heaviside(h.round(), x) * x,
    "logical_and": lambda h, x: torch.logical_and(h > 0, x > 0).to(h.dtype) + h,
    "logical_or": lambda h, x: torch.logical_or(h > 0, x.round()).to(h.dtype) + h,
    "logical_xor": lambda h, x: torch.logical_xor(h > 0, x > 0).to(h.dtype) + h,
    "logical_not": lambda h, x: torch.logical_not(h.round()).to(h.dtype) * x,
    "bitwise_and": lambda h, x: ((h > 0) & (x > 0)).to(h.dtype) * h,
    "bitwise_or": lambda h, x: ((h > x) | (h > 0.7)).to(h.dtype) * h,
    "bitwise_xor": lambda h, x: ((h > 0) ^ (x > 0)).to(h.dtype) * h,
    "bitwise_not": lambda h, x: (~(h > 0)).to(h.dtype) * h,
    "lt": lambda h, x: (h.round() < x.round()) * x,  # rounded, so that some are equal
    "le": lambda h, x: (h.round() <= 1) * h,
    "gt": lambda h, x: (x.round() > h.round()) * h,
    "ge": lambda h, x: (h.round() >= x.round()) * h + (h.round().long() >= 1),
    "eq": lambda h, x: (h.round() == x.round()) * h + (h.round().long() == 1),
    "ne": lambda h, x: (h.round() != 1) * h + ((h > 0) != (x > 0)),
    "neg": lambda h, x: -h,
    "abs": lambda h, x: h.abs(),
    "floor": lambda h, x: torch.floor(2 * h),
    "ceil": lambda h, x: torch.ceil(2 * h),
    "trunc": lambda h, x: torch.trunc(2 * h),
    "sqrt": lambda h, x: torch.sqrt(h.abs()),
    "exp": lambda h, x: torch.exp(h.clamp(max=3)),
    "expm1": lambda h, x: torch.expm1(h.clamp(max=3)),
    "log": lambda h, x: torch.log(h.abs() + 0.01),
    "log1p": lambda h, x: torch.log1p(h.abs()) + 1e3 * torch.log1p(1e-3 * h.abs()),
    "log2": lambda h, x: torch.log2(h.abs() + 0.01),
    "log10": lambda h, x: torch.log10(h.abs() + 0.01),
    "logaddexp": lambda h, x: torch.logaddexp(h, x) + torch.logaddexp(h, h),
    "erf": lambda h, x: torch.erf(h),
    "sigmoid": lambda h, x: torch.sigmoid(3 * h),
    "tanh": lambda h, x: torch.tanh(h),
    "clone": lambda h, x: h.clone() * x,
    "detach": lambda h, x: h.detach() * x,
    "alias": lambda h, x: torch.ops.aten.alias(h) * x,
    "_to_copy": lambda h, x: h.to(torch.int64).to(h.dtype) + h.to(torch.bool) * 0.3,
    "lift_fresh": lambda h, x: torch.ops.aten.lift_fresh(h) * x,
}


def test_every_known_operation_is_tried_and_recorded_under_its_name():
    known = REGISTRY.items()
    assert set(ACTIVATIONS) == {name for name, one in known if one.is_elementwise and one.lanes}
    for name, middle in ACTIVATIONS.items():
        problem = problem_with(middle, batch=2)
        with torch.no_grad():
            written = record(problem, trainable(problem.model), 0)
        assert name in {node.name for node in written.nodes}, name


def several(table, size):
    """Entries of a table, some at a time in one model: a kernel takes long to compile."""
    names = list(table)
    groups = [names[first : first + size] for first in range(0, len(names), size)]
    return pytest.mark.parametrize("names", groups, ids=" ".join)


def total(table, names):
    """A function whose value shows a fault of any of them: none stands behind another."""
    return lambda h, x: sum(table[name](h, x) / (1 + n) for n, name in enumerate(names))


@several(ACTIVATIONS, 4)
@pytest.mark.parametrize(("subspace", "dtype"), FORMS, ids=["columns", "layers"])
def test_operations_are_fused_and_exact(names, subspace, dtype):
    """One unit per candidate in double precision, a whole layer in single precision."""
    problem = problem_with(total(ACTIVATIONS, names), dtype)
    check_fused(problem, names, subspace, dtype)


@settings(max_examples=12, deadline=None, derandomize=True)
@given(
    seed=st.integers(0, 10_000),
    batch=st.integers(1, 40),
    size=st.sampled_from([1e-30, 1e-6, 1.0, 30.0, 1e4]),
    pick=st.sampled_from(["tanh", "round", "where", "clamp", "eq", "sigmoid"]),
)
def test_operations_are_exact_for_any_weights_and_any_number_of_examples(seed, batch, size, pick):
    problem = problem_with(ACTIVATIONS[pick], batch=batch, seed=seed)
    with torch.no_grad():
        problem.model.a.weight.mul_(size)
    check_fused(problem, pick, RowWise(2), torch.float64)


def test_comparisons_with_a_number_happen_in_the_type_of_the_tensor():
    """0.1 in single precision lies above 0.1; a tensor without dimensions does not widen it."""

    def on_the_edge(h, x):
        at = torch.where(h > 0, 0.1, -0.1).to(h.dtype)
        return (at > 0.1).to(h.dtype) + (at > torch.tensor(0.1, dtype=torch.float64)) * h

    problem = problem_with(on_the_edge, torch.float32)
    _, _, wrong, evaluator = compare(problem, RowWise(2), torch.float32)
    assert not wrong
    assert set(evaluator.notes.values()) == {"fused"}


# -- reductions, lookups and routing -------------------------------------------------------


def routed(by, *parts):
    """Values stacked along a new axis, one of them taken per example."""
    best = by.argmax(dim=1)[:, None, None]
    return torch.take_along_dim(torch.stack(parts, dim=1), best, dim=1).squeeze(1)


TABLE = torch.randn(HIDDEN, HIDDEN, generator=torch.Generator().manual_seed(5))
FACTOR = torch.randn(HIDDEN, 5, generator=torch.Generator().manual_seed(6))

REDUCTIONS_FUSED = {
    "softmax": lambda h, x: torch.softmax(h, dim=-1),
    "log_softmax": lambda h, x: F.log_softmax(2 * h, dim=1),
    "sum": lambda h, x: h - h.sum(dim=1, keepdim=True) * x,
    "mean": lambda h, x: h * h.mean(dim=-1, keepdim=True),
    "centered": lambda h, x: (
        (h - h.mean(1, True)) / (((h - h.mean(1, True)) ** 2).mean(1, True) + 1) ** 0.5
    ),
    "amax": lambda h, x: h - h.amax(dim=1, keepdim=True),
    "amin": lambda h, x: h - h.amin(dim=1, keepdim=True),
    "max": lambda h, x: x * h.max(dim=1, keepdim=True).values,
    "max-index": lambda h, x: x * h.max(dim=1, keepdim=True).indices,
    "min-index": lambda h, x: x * h.min(dim=1, keepdim=True).indices,
    "argmax": lambda h, x: (h.argmax(dim=1, keepdim=True) == torch.arange(HIDDEN)) * x,
    "argmin": lambda h, x: h.sqrt().argmin(dim=1, keepdim=True) * x,  # some are no numbers
    "gather": lambda h, x: x * h.gather(1, x.argmax(dim=1, keepdim=True)),
    "gather-changed": lambda h, x: h * x.gather(1, h.argmax(dim=1, keepdim=True)),
    "lookup": lambda h, x: TABLE.to(h.dtype)[h.argmax(dim=1)] * h,
    "fixed-route": lambda h, x: routed(x[:, :3], torch.relu(h), x, -h),
    "chosen-route": lambda h, x: routed(h, h, x, h * x, h + x, x - h, h * 2, x * 2, -h, -x),
    "gate": lambda h, x: x * torch.sigmoid(h.mean(dim=1, keepdim=True)).expand(-1, HIDDEN),
    "a unit": lambda h, x: x * torch.tanh(h[:, 1])[:, None],
    "the last unit": lambda h, x: x - h[:, -1, None] * torch.softmax(h, 1),
    "units apart": lambda h, x: x * torch.stack(torch.relu(h).unbind(1)[2:4]).sum(0)[:, None],
    "some units": lambda h, x: x * (h.sigmoid()[:, 2:5] - x[:, :3]).amax(1, keepdim=True),
    "every other unit": lambda h, x: x * (h.exp()[:, 1::2] / 3).mean(1, keepdim=True),
    "halves": lambda h, x: x * (torch.relu(h[:, :4]) * torch.sigmoid(h[:, 4:8])).sum(1)[:, None],
    "thirds": lambda h, x: (
        x * (lambda a, b, c: (a * b).argmax(1, True) + c.sum(1, True))(*(h * 2).chunk(3, dim=1))
    ),
    "uneven parts": lambda h, x: (
        x * torch.softmax(h, 1).split([2, 1, HIDDEN - 3], 1)[2].amin(1, keepdim=True)
    ),
    "parts of parts": lambda h, x: x * h[:, 1:][:, ::2][:, 1:3].sum(1, keepdim=True),
    "units of a product": lambda h, x: x * (torch.relu(h) @ FACTOR.to(h))[:, 1:3].sum(1, True),
    "rows of a table": lambda h, x: x * TABLE.to(h)[h.argmax(1)][:, 2:4].sum(1, True),
    "routed-by-a-part": lambda h, x: routed((h - x)[:, :3], h, x, h * x),
    "an axis of size 1": lambda h, x: (h.unsqueeze(1)[:, 0] + x).unsqueeze(2)[..., 0],
}
# Not covered by kernels today; the losses must agree all the same.
REDUCTIONS_FOLLOWED = {
    "var": lambda h, x: h / (1 + h.var(dim=1, keepdim=True)),
    "logsumexp": lambda h, x: h - h.logsumexp(dim=1, keepdim=True),
    "cumsum": lambda h, x: h.cumsum(dim=1),
    "sort": lambda h, x: h.sort(dim=1).values,
    "topk": lambda h, x: x * (h >= h.topk(2, dim=1).values[:, -1:]),
    "prod": lambda h, x: x * h.prod(dim=1, keepdim=True),
    "any": lambda h, x: x * (h > 2).any(dim=1, keepdim=True),
    "over-examples": lambda h, x: h - h.mean(dim=0),
    "amax-of-integers": lambda h, x: x * h.round().long().amax(dim=1, keepdim=True),
    "argmax-of-integers": lambda h, x: TABLE.to(h.dtype)[h.round().long().argmax(dim=1)],
    "max-of-truths": lambda h, x: x * (h > 2).max(dim=1, keepdim=True).values,
    "floor-division": lambda h, x: torch.div((10 * h).round() / 10, 0.1, rounding_mode="floor"),
    "computed-index": lambda h, x: TABLE.to(h.dtype)[h.argmax(dim=1) - 4],
    "index-from-the-end": lambda h, x: TABLE.to(h.dtype)[-1 - h.argmax(dim=1)] * h,
}


@several(REDUCTIONS_FUSED, 3)
@pytest.mark.parametrize(("subspace", "dtype"), FORMS, ids=["columns", "layers"])
def test_reductions_and_lookups_are_fused_and_exact(names, subspace, dtype):
    problem = problem_with(total(REDUCTIONS_FUSED, names), dtype)
    check_fused(problem, names, subspace, dtype)


@pytest.mark.parametrize("name", REDUCTIONS_FOLLOWED)
def test_reductions_and_lookups_that_are_not_fused(name):
    for subspace, dtype in FORMS:
        problem = problem_with(REDUCTIONS_FOLLOWED[name], dtype)
        evaluator, _ = check_losses(problem, name, subspace, dtype)
        hidden = {note for names, note in evaluator.notes.items() if names[0].startswith("a.")}
        assert hidden <= {"gathered", "incremental"}, evaluator.notes


# -- losses ----------------------------------------------------------------------------------

WEIGHT = torch.tensor([0.3, 1.0, 2.5, 0.7])


def values(t):
    """A real target (examples, classes) from labels."""
    return torch.cos(1.0 + t[:, None] * torch.arange(1, CLASSES + 1))


LOSSES_FUSED = {
    "cross-entropy": F.cross_entropy,
    "weighted": lambda o, t: F.cross_entropy(o, t, weight=WEIGHT.to(o.dtype)),
    "ignoring": lambda o, t: F.cross_entropy(o, t, ignore_index=2),
    "smoothed": lambda o, t: F.cross_entropy(o, t, label_smoothing=0.1),
    "smoothed, ignoring": lambda o, t: F.cross_entropy(o, t, label_smoothing=0.1, ignore_index=1),
    "smoothed, weighted": lambda o, t: F.cross_entropy(
        o, t, weight=WEIGHT.to(o.dtype), label_smoothing=0.2
    ),
    "summed": lambda o, t: F.cross_entropy(o, t, reduction="sum"),
    "weighted, summed": lambda o, t: F.cross_entropy(
        o, t, weight=WEIGHT.to(o.dtype), reduction="sum", ignore_index=0
    ),
    "nll": lambda o, t: F.nll_loss(F.log_softmax(o, dim=1), t),
    "mse": lambda o, t: F.mse_loss(o, values(t).to(o.dtype)),
    "mse, summed": lambda o, t: F.mse_loss(o, values(t).to(o.dtype), reduction="sum"),
    "mse, reversed": lambda o, t: F.mse_loss(values(t).to(o.dtype), o),
    "mse, wide target": lambda o, t: F.mse_loss(o, values(t).double()),
    "mse, whole target": lambda o, t: F.mse_loss(o, t[:, None].expand(-1, CLASSES)),
    "mse by hand": lambda o, t: ((o - values(t).to(o.dtype)) ** 2).mean(),
    "l1 by hand": lambda o, t: (o - values(t).to(o.dtype)).abs().mean(),
    "l1": lambda o, t: F.l1_loss(o, values(t).to(o.dtype)),
    "soft labels": lambda o, t: F.cross_entropy(o, torch.softmax(values(t).to(o.dtype), 1)),
    "hinge": lambda o, t: torch.relu(1 - o.gather(1, t[:, None]) + o).sum(),
    "accuracy": lambda o, t: (o.argmax(dim=1) == t).to(o.dtype).mean() + 1e-3 * o.mean(),
    "axes kept": lambda o, t: (
        o.square().mean((0, 1), keepdim=True) * torch.ones(2, 1).to(o)
    ).sum(),
    "mean, squared": lambda o, t: F.cross_entropy(o, t) ** 2 + 3 * o.mean(),
    "bce with logits": lambda o, t: F.binary_cross_entropy_with_logits(
        o, (values(t) > 0).to(o.dtype)
    ),
    "bce, far away": lambda o, t: F.binary_cross_entropy_with_logits(
        40 * o, values(t).to(o).sigmoid(), reduction="sum"
    ),
    "bce of a class": lambda o, t: F.binary_cross_entropy_with_logits(o[:, 0], (t > 1).to(o)),
    "mse of the last": lambda o, t: F.mse_loss(o[:, -1], t.to(o.dtype)),
}
# Not covered by kernels today; the losses must agree all the same.
LOSSES_FOLLOWED = {
    "weighted bce": lambda o, t: F.binary_cross_entropy_with_logits(
        o, values(t).to(o).sigmoid(), pos_weight=WEIGHT.to(o)
    ),
    "smooth l1": lambda o, t: F.smooth_l1_loss(o, values(t).to(o.dtype)),
    "huber": lambda o, t: F.huber_loss(o, values(t).to(o.dtype)),
    "byte labels": lambda o, t: F.cross_entropy(o, t.to(torch.uint8)),
    "variance over the batch": lambda o, t: F.cross_entropy(o, t) + o.var(dim=0).mean(),
}


@pytest.mark.parametrize(("number", "name"), list(enumerate(LOSSES_FUSED | LOSSES_FOLLOWED)))
def test_losses(number, name):
    """The forms in turn: what a loss reads is whole examples, whatever changed before them."""
    loss, (subspace, dtype) = (LOSSES_FUSED | LOSSES_FOLLOWED)[name], FORMS[number % 2]
    problem = problem_with(lambda h, x: torch.relu(h), dtype, loss=loss)
    evaluator, _ = check_losses(problem, name, subspace, dtype)
    fused = set(evaluator.notes.values()) == {"fused"}
    assert fused == (name in LOSSES_FUSED), evaluator.notes


def test_a_batch_in_which_every_label_is_ignored_has_no_loss():
    def ignored(o, t):
        return F.cross_entropy(o, torch.full_like(t, -100))

    problem = problem_with(lambda h, x: torch.relu(h), loss=ignored)
    _, found, wrong, _ = compare(problem, RowWise(2), torch.float64)
    assert found.isnan().all()
    assert not wrong
