"""Operations along dimensions of one example: softmax, sums, parts, norms."""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from hardstep.evaluation.gathered.deferred import Deferred
from hardstep.evaluation.gathered.outer import Outer, pad
from hardstep.evaluation.gathered.places import Mixed, Place
from hardstep.evaluation.gathered.reader import Reader
from hardstep.evaluation.gathered.scene import ApartRule, Call, Cut, Scene
from hardstep.evaluation.incremental.along import find_dim_argument, find_dims
from hardstep.evaluation.trace.nodes import Node, Ref


def _replace_dims(node: Node, own: list[int]) -> tuple[list[Any], dict[str, Any]]:
    """Arguments with the dimensions of values that have two leading axes."""
    place, name, given = find_dim_argument(node)
    shifted: Any = [dim + 2 for dim in own]
    if not isinstance(given, list | tuple):
        (shifted,) = shifted
    args, kwargs = list(node.args), dict(node.kwargs)
    if place < len(args):
        args[place] = shifted
    else:
        kwargs[name] = shifted
    return args, kwargs


def call_along(node: Node, scene: Scene) -> Call:
    """An operation of one value along dimensions that hold no examples."""
    dims = find_dims(node, scene.base)
    index, place = node.inputs[0], scene.places[node.inputs[0]]
    if place is None or not dims or any(scene.places[i] for i in node.inputs[1:]):
        raise Mixed(f"{node.name} along everything, or of several values")
    own = [place.check_dim(dim, node.name) for dim in dims]
    args, kwargs = _replace_dims(node, own)
    ndim = scene.base(index).dim()
    drops = scene.base(node.outputs[0]).dim() < ndim
    found = Place(place.axis - drops * sum(d < place.axis for d in dims), place.outer, place.inner)
    left = [d for d in range(len(scene.shape(index))) if d not in own or not drops]

    def run(read: Reader) -> list[Tensor]:
        rest = [scene_value(read, arg) for arg in args[1:]]
        result = node.func(read.read(index), *rest, **kwargs)
        return list(result) if isinstance(result, tuple | list) else [result]

    def track(dim: int) -> Mapping[int, int]:
        if left[dim] in own:
            raise Mixed(f"{node.name} along the dimension")
        return {index: left[dim]}

    return Call([found] * len(node.outputs), run, track)


def scene_value(read: Reader, argument: Any) -> Any:
    """An argument that all share."""
    if not isinstance(argument, Ref):
        return argument
    if read.is_changed(argument.index):
        raise Mixed("an index that candidates change")
    return read.scene.base(argument.index)


def call_part(node: Node, scene: Scene) -> Call:
    """An index or a stretch of a dimension, and no more of it is needed."""
    call, index = call_along(node, scene), node.inputs[0]
    place = scene.places[index]
    assert place is not None
    (dim,) = find_dims(node, scene.base) or [0]
    own, size = place.check_dim(dim, node.name), scene.base(index).shape[dim]
    drops = scene.base(node.outputs[0]).dim() < scene.base(index).dim()
    if drops:
        start, length, step = node.args[2] % size, 1, 1
    else:
        start, stop, step = slice(*[*node.args[2:5], None, None, None][:3]).indices(size)
        length = stop - start
    if step != 1 or length <= 0:
        return call
    asked = Cut(own, start, length)

    def run(read: Reader) -> list[Tensor]:
        if read.asked.get(index) != asked:
            return list(call.run(read))
        value = read.read(index)
        return [value.squeeze(own + 2) if drops else value]

    def carry(read: Reader) -> Outer | None:
        outer = read.env.get(index)
        if not isinstance(outer, Outer) or not outer.is_recorded or index in read.cuts:
            return None
        ndim, rows = len(scene.shape(index)), read.asked.get(index) if read.out else None

        def take(part: Tensor) -> Tensor:
            part = pad(part, ndim) if rows is None else _narrow(pad(part, ndim), rows)
            part = _narrow(part, asked)
            return part.squeeze(2 + asked.dim) if drops else part

        read.asked = {}
        return replace(outer.change(take).drop_terms(), base=read.base_result(node.outputs[0]))

    def defer(read: Reader) -> Deferred | None:
        undone = read.deferred(index) if read.asked.get(index) == asked else None
        return undone.drop(own) if undone is not None and drops else undone

    return replace(call, run=run, asks={index: asked}, carry=carry, defer=defer)


def _narrow(part: Tensor, cut: Cut) -> Tensor:
    """A stretch of a dimension, where a value is not the same all along it."""
    axis = 2 + cut.dim
    return part.narrow(axis, cut.start, cut.length) if part.shape[axis] > 1 else part


def join_values(is_new: bool) -> ApartRule:
    """Values one behind the other, along a dimension that holds no examples or is new."""
    return partial(_call_join, is_new=is_new)


def _call_join(node: Node, scene: Scene, is_new: bool) -> Call:
    out = scene.base(node.outputs[0])
    dim = (node.args[1] if len(node.args) > 1 else node.kwargs.get("dim", 0)) % out.dim()
    refs, ndim = [ref.index for ref in node.args[0]], out.dim() - is_new
    places = {scene.places[i] for i in refs} - {None}
    if len(places) != 1 or any(scene.base(i).dim() != ndim for i in refs):
        raise Mixed(f"{node.name} of examples on different axes")
    (place,) = places
    assert place is not None
    found = replace(place, axis=place.axis + (is_new and dim <= place.axis))
    own = found.check_dim(dim, node.name)
    function = torch.stack if is_new else torch.cat

    def run(read: Reader) -> tuple[Tensor]:
        parts = [read.align(index, ndim, place) for index in refs]
        length = max(part.dim() for part in parts)
        wide = [part.reshape(*[1] * (length - part.dim()), *part.shape) for part in parts]
        return (function([read.widen(part) for part in wide], own + 2),)

    def track(dim: int) -> Mapping[int, int]:
        if dim == own:
            raise Mixed(f"{node.name} along the dimension")
        return dict.fromkeys(refs, dim - (is_new and dim > own))

    return Call([found], run, track, stacks=is_new)


def call_padding(node: Node, scene: Scene) -> Call:
    """The same number before and behind the numbers of one example."""
    index, place = node.inputs[0], scene.places[node.inputs[0]]
    behind = len(node.args[1]) // 2
    if place is None or place.axis >= scene.base(index).dim() - behind:
        raise Mixed(f"{node.name} works across examples")
    length = len(scene.shape(index)) - behind

    def run(read: Reader) -> tuple[Tensor]:
        return (node.func(read.read(index), *node.args[1:]),)

    def track(dim: int) -> Mapping[int, int]:
        if dim >= length:
            raise Mixed("padding of the dimension")
        return {index: dim}

    return Call([place], run, track)


def call_layer_norm(node: Node, scene: Scene) -> Call:
    """Normalization of the last dimensions; candidates may change the scale and the shift."""
    source, sizes, weight, bias, eps = node.args[:5]
    index, place = source.index, scene.places[source.index]
    ndim = scene.base(index).dim()
    first = ndim - len(sizes)
    if place is None or place.axis >= first or any(scene.places[i] for i in node.inputs[1:]):
        raise Mixed(f"{node.name} across examples")
    length = len(scene.shape(index)) - len(sizes)

    def run(read: Reader) -> list[Tensor]:
        own = [ref for ref in (weight, bias) if isinstance(ref, Ref)]
        changed = any(read.is_changed(ref.index) for ref in own)
        given = [None, None] if changed else [scene_value(read, ref) for ref in (weight, bias)]
        result, *others = node.func(read.read(index), sizes, *given, eps)
        if changed and weight is not None:
            result = result * read.align(weight.index, ndim, place)
        if changed and bias is not None:
            result = result + read.align(bias.index, ndim, place)
        return [result, *others]

    def track(dim: int) -> Mapping[int, int]:
        if dim >= length:
            raise Mixed("a norm along the dimension")
        return {index: dim}

    def carry(read: Reader) -> Outer | None:
        """Rows less their mean, which is linear, and what they are divided by."""
        outer = read.as_outer(index)
        own = [ref.index for ref in (weight, bias) if ref is not None]
        out, wanted = node.outputs[0], node.outputs[0] in read.spread and len(sizes) == 1
        if outer is None or not wanted or any(read.is_changed(i) for i in own):
            return None
        scale = read.find(node.outputs[2])
        if scale is None:
            return None
        gain = scene.base(weight.index) if weight is not None else 1.0

        def center(value: Tensor) -> Tensor:
            return (value - value.mean(dim=-1, keepdim=True)) * gain

        base = read.lifts.derive(("rows", out), lambda: center(outer.base))
        terms = tuple((delta, center(factor)) for delta, factor in outer.terms)
        shift = None if bias is None else scene.base(bias.index)
        return Outer(base, terms, scale, shift, ("rows", out))

    return Call([place] * 3, run, track, carry=carry)
