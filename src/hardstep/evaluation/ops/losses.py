"""Losses that are one operator: scores or values in, one number (or one per example) out."""

from functools import partial
from typing import Any

import torch
from torch import Tensor

from hardstep.evaluation.incremental.changes import Pairs, Stacked
from hardstep.evaluation.incremental.columns import Lookup
from hardstep.evaluation.incremental.examples import (
    Env,
    Result,
    always,
    gather_examples,
    run_apart,
)
from hardstep.evaluation.ops.operator import Operator
from hardstep.evaluation.trace.record import Node

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
    old = base(scores.index)[pairs.example]
    chosen = labels[pairs.example]
    difference = (
        one(new, chosen, class_weight, 0, ignore)[0].double()
        - one(old, chosen, class_weight, 0, ignore)[0].double()
    )
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

    def loss(values: list[Tensor]) -> Tensor:
        head: list[Any] = [*values, *[None] * (place - len(values))]
        rest = node.args[place + 1 :]
        each = node.func(*head, 0, *rest).double()
        return each.reshape(len(each), -1).sum(dim=1)  # type: ignore[no-any-return]

    new = loss([gather_examples(index, env, base, pairs) for index in node.inputs])
    old = loss([value[pairs.example] for value in operands])
    total = new.new_zeros(pairs.num_candidates).index_add_(0, pairs.candidate, new - old)
    count = operands[0].numel() if reduction == 1 else 1
    result = base(node.outputs[0]).double() + total / count
    return (Stacked(result.to(operands[0].dtype)),)


def _reduced(name: str, place: int = 2) -> Operator:
    return Operator(name, examples=partial(_carry_reduced, place=place))


OPERATORS = (
    Operator("nll_loss_forward", examples=_carry_nll),
    _reduced("mse_loss"),
    _reduced("smooth_l1_loss"),
    _reduced("huber_loss"),
    _reduced("soft_margin_loss"),
    _reduced("binary_cross_entropy", place=3),
)
