"""Operations that add examples up: the base's result, and what changed examples add to it."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor

from hardstep.evaluation.gathered.along import call_along
from hardstep.evaluation.gathered.places import Mixed
from hardstep.evaluation.gathered.reader import Reader
from hardstep.evaluation.gathered.scene import ApartRule, Call, Scene, Sum
from hardstep.evaluation.gathered.shapes import call_elementwise
from hardstep.evaluation.incremental.along import find_dims
from hardstep.evaluation.trace.nodes import Node


def _finish(read: Reader, node: Node, each: Tensor, divisor: Tensor | float) -> Tensor:
    """The base's number plus what examples (lead, …) add, for each candidate."""
    base = read.scene.base(node.outputs[0])
    total = read.total(each.flatten(2).sum(dim=2) if each.dim() > 2 else each)
    wide = total / divisor
    return (base.double() + wide.reshape(-1, *[1] * base.dim())).to(base.dtype)


def call_sum(is_mean: bool) -> ApartRule:
    """A sum or mean along dimensions of one example, or over everything."""
    return partial(_call_sum, is_mean=is_mean)


def _call_sum(node: Node, scene: Scene, is_mean: bool) -> Call:
    index = node.inputs[0]
    place, value = scene.places[index], scene.base(index)
    assert place is not None
    dims = find_dims(node, scene.base)
    if dims and place.axis not in dims:
        call = call_along(node, scene)
        own = [place.check_dim(dim, node.name) for dim in dims]
        drops = scene.base(node.outputs[0]).dim() < value.dim()
        if len(own) > 1 or not drops or not value.is_floating_point() or node.kwargs:
            return call
        return replace(call, adds=Sum(own[0], value.shape[dims[0]] if is_mean else 1))
    result = scene.base(node.outputs[0])
    if result.numel() != 1:
        raise Mixed(f"{node.name} over examples, but not over everything")
    count = value.numel() if is_mean else 1

    def run(read: Reader) -> tuple[Tensor]:
        each = read.read(index).double() - read.base(index).double()
        return (_finish(read, node, each, count),)

    return Call([None], run, closes=True)


def call_nll(node: Node, scene: Scene) -> Call:
    """Negative log-likelihood, of one or of several scores of an example."""
    scores, target, weight, reduction, ignore = node.args[:5]
    place = scene.places[scores.index]
    alike = place is not None and place == scene.places[target.index]
    if not alike or scene.base(target.index).dim() != 1 or reduction == 0:
        raise Mixed(f"{node.name} other than of scores and labels, reduced")
    if weight is not None and scene.places[weight.index]:
        raise Mixed(f"{node.name} with weights of examples")
    one = torch.ops.aten.nll_loss_forward.default

    def run(read: Reader) -> tuple[Tensor, Tensor]:
        if any(read.is_changed(i) for i in node.inputs[1:]):
            raise Mixed(f"{node.name} whose labels change")
        scaled = read.scene.base(weight.index) if weight is not None else None
        new, old = read.read(scores.index), read.base(scores.index)
        labels = read.read(target.index)

        def loss(values: Tensor) -> Tensor:
            chosen = labels.expand(values.shape[:-1]).reshape(-1)
            flat = values.reshape(-1, values.shape[-1])
            each: Tensor = one(flat, chosen, scaled, 0, ignore)[0]
            return each.double().reshape(values.shape[:-1])

        counted = read.scene.base(node.outputs[1])
        divisor = counted.double() if reduction == 1 else 1
        return (
            _finish(read, node, loss(new) - loss(old), divisor),
            counted.expand(read.num),
        )

    return Call([None, None], run, closes=True)


def call_loss(place: int) -> ApartRule:
    """A loss of every number, reduced or not; `place` is that of the argument that says which."""

    def rule(node: Node, scene: Scene) -> Call:
        reduction = node.args[place] if len(node.args) > place else 1
        if reduction == 0:
            return call_elementwise(node, scene)
        operands = [scene.base(index) for index in node.inputs]
        if any(value.shape != operands[0].shape for value in operands):
            raise Mixed(f"{node.name} of values that are broadcast")
        places = {scene.places[index] for index in node.inputs}
        if len(places) != 1 or places == {None}:
            raise Mixed(f"{node.name} of examples on different axes")

        def loss(take: Callable[[int], Tensor]) -> Tensor:
            args, kwargs = node.filled(lambda ref: take(ref.index))
            head = [*args[:place], *[None] * (place - len(args))]
            return node.func(*head, 0, *args[place + 1 :], **kwargs).double()  # type: ignore[no-any-return]

        def run(read: Reader) -> tuple[Tensor]:
            each = loss(lambda index: read.widen(read.read(index))) - loss(read.base)
            count = operands[0].numel() if reduction == 1 else 1
            return (_finish(read, node, each, count),)

        return Call([None], run, closes=True)

    return rule
