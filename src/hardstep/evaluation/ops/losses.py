"""Losses that are one operator: scores or values in, one number (or one per example) out."""

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from hardstep.evaluation.fused.expressions import Access, Apply, Expr, Fn, Kind, Unfusable
from hardstep.evaluation.fused.sums import close_difference
from hardstep.evaluation.fused.tables import LabelWeight, PerExample, PickedScore
from hardstep.evaluation.fused.translate import (
    Closing,
    Lowering,
    Translator,
    find_argument,
)
from hardstep.evaluation.gathered.closings import call_loss, call_nll
from hardstep.evaluation.incremental.changes import Pairs, Stacked
from hardstep.evaluation.incremental.columns import Lookup
from hardstep.evaluation.incremental.examples import (
    Env,
    Result,
    always,
    gather_examples,
    run_apart,
)
from hardstep.evaluation.ops.formulas import Term, exp, log1p, minimum
from hardstep.evaluation.ops.operator import Operator
from hardstep.evaluation.trace.nodes import Node

_one_per_number = run_apart(always)


def _carry_nll(node: Node, env: Env, base: Lookup, pairs: Pairs) -> Result:
    """Negative log-likelihood: the changed examples' losses replace the base's."""
    scores, target, weight, reduction, ignore = node.args[:5]
    if set(node.inputs[1:]) & set(env):
        return None
    labels, class_weight = base(target.index), base(weight.index) if weight else None
    if labels.dim() != 1 or reduction == 0:
        return None
    one = torch.ops.aten.nll_loss_forward.default
    new = gather_examples(scores.index, env, base, pairs)
    chosen = labels.index_select(0, pairs.example)
    old = one(base(scores.index), labels, class_weight, 0, ignore)[0]
    found = one(new, chosen, class_weight, 0, ignore)[0]
    difference = found.double() - old.double().index_select(0, pairs.example)
    total = difference.new_zeros(pairs.num_candidates).index_add_(0, pairs.candidate, difference)
    weight_sum = base(node.outputs[1]).double()
    result = base(node.outputs[0]).double() + (total / weight_sum if reduction == 1 else total)
    same = base(node.outputs[1]).expand(pairs.num_candidates)
    return (Stacked(result.to(new.dtype)), Stacked(same))


def _carry_reduced(node: Node, env: Env, base: Lookup, pairs: Pairs, place: int) -> Result:
    """An element-wise loss and its mean or sum; `place` is that of the argument that says which."""
    operands = [base(index) for index in node.inputs]
    if any(value.shape != operands[0].shape for value in operands):
        return None
    reduction = node.args[place] if len(node.args) > place else 1
    if reduction == 0:
        return _one_per_number(node, env, base, pairs)

    def loss(read: Callable[[int], Tensor]) -> Tensor:
        args, kwargs = node.filled(lambda ref: read(ref.index))
        head = [*args[:place], *[None] * (place - len(args))]
        each = node.func(*head, 0, *args[place + 1 :], **kwargs).double()
        return each.reshape(len(each), -1).sum(dim=1)  # type: ignore[no-any-return]

    new = loss(lambda index: gather_examples(index, env, base, pairs))
    old = loss(lambda index: base(index)[pairs.example])
    total = new.new_zeros(pairs.num_candidates).index_add_(0, pairs.candidate, new - old)
    count = operands[0].numel() if reduction == 1 else 1
    result = base(node.outputs[0]).double() + total / count
    return (Stacked(result.to(operands[0].dtype)),)


# -- kernels -----------------------------------------------------------------------------------


def _lower_nll(t: Translator, node: Node) -> None:
    """Negative log-likelihood of shared labels."""
    scores, target, weight, reduction, ignore = node.args[:5]
    labels = t.base(target.index)
    if t.kind(target.index) is not Kind.I64:
        raise Unfusable("nll_loss with labels that are not int64")
    if set(node.inputs) & t.values.keys() != {scores.index} or labels.dim() != 1 or not reduction:
        raise Unfusable("nll_loss other than of changed scores, reduced")
    found = t.dense(scores.index)
    if found.axis != -1 or found.expr.domain is None:
        raise Unfusable("nll_loss along an axis that is not followed")
    label = t.g.read(Access.LANE, Kind.I64, t.program.table(PerExample(target.index)))
    # Only one score per example is needed, so take it before what is alike for all of them.
    new = _pick(t, found.expr, label)
    picked = t.program.table(PickedScore(scores.index, target.index))
    old = t.g.read(Access.LANE, new.kind, picked)
    factor = LabelWeight(target.index, weight.index if weight else None, ignore)
    scale = t.g.read(Access.LANE, Kind.F64, t.program.table(factor))
    gain = t.g.apply(Fn.SUB, t.g.cast(old, Kind.F64), t.g.cast(new, Kind.F64))
    # Examples that do not count have weight 0, and 0 times not-a-number must not spoil the sum.
    zero = t.g.constant(0.0, Kind.F64)
    counts = t.g.apply(Fn.NE, scale, zero)
    loss = t.g.select(counts, t.g.apply(Fn.MUL, gain, scale), zero)
    mean = reduction == 1
    divisor = node.outputs[1] if mean else 1
    t.program.closings.append(Closing(node.outputs[0], loss, divisor, by_value=mean))
    t.closed.update(node.outputs)


def _pick(t: Translator, value: Expr, label: Expr) -> Expr:
    shifted = isinstance(value, Apply) and value.function is Fn.SUB
    if shifted and value.args[1].domain is None:
        return t.g.apply(Fn.SUB, _pick(t, value.args[0], label), value.args[1])
    return t.g.pick(value, label)


def _lower_pairs(function: Callable[[Term, Term], Term], place: int = 2) -> Lowering:
    """A loss of every value and its target, one of which is not changed; summed or averaged."""

    def lower(t: Translator, node: Node) -> None:
        reduction = find_argument(node, place, "reduction", 1)
        inputs = [arg.index for arg in node.args[:2]]
        out = node.outputs[0]
        shapes = {t.base(i).shape for i in inputs}
        if reduction == 0 or len(shapes) != 1 or t.base(inputs[0]).dim() > 2:
            raise Unfusable(f"{node.name} that is not reduced, or broadcasts")
        if len(node.inputs) > 2:
            raise Unfusable(f"{node.name} with weights")
        ndim, size = t.base(inputs[0]).dim(), t.base(inputs[0]).numel()
        axis = -1 if ndim == 2 else None

        def loss(read: Callable[[int], Expr]) -> Expr:
            value, target = (Term(t.g, t.g.cast(read(i), t.kind(out))) for i in inputs)
            return function(value, target).expr

        def now(index: int) -> Expr:
            return t.dense(index).expr if index in t.values else before(index)

        def before(index: int) -> Expr:
            return t.read_shared(index, ndim, axis, column=False)

        close_difference(t, out, loss(now), loss(before), size if reduction == 1 else 1)

    return lower


def _square(value: Term, target: Term) -> Term:
    gap = value - target
    return gap * gap


def _cross_entropy_of_truths(value: Term, target: Term) -> Term:
    """As torch computes it, with the logarithm of a sigmoid."""
    log_sigmoid = minimum(value, 0) - log1p(exp(-abs(value)))
    return (1 - target) * value - log_sigmoid


# -- entries -----------------------------------------------------------------------------------


def _reduced(name: str, place: int = 2, lanes: Lowering | None = None) -> Operator:
    return Operator(
        name,
        examples=partial(_carry_reduced, place=place),
        apart=call_loss(place),
        lanes=lanes,
    )


OPERATORS = (
    Operator("nll_loss_forward", examples=_carry_nll, apart=call_nll, lanes=_lower_nll),
    _reduced("mse_loss", lanes=_lower_pairs(_square)),
    _reduced("smooth_l1_loss"),
    _reduced("huber_loss"),
    _reduced("soft_margin_loss"),
    _reduced("binary_cross_entropy", place=3),
    _reduced(
        "binary_cross_entropy_with_logits", 4, lanes=_lower_pairs(_cross_entropy_of_truths, 4)
    ),
)
