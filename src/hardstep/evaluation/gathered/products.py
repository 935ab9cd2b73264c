"""Matrix products of examples of many candidates with what they share: one product for all."""

from collections.abc import Mapping

import torch
from torch import Tensor

from hardstep.evaluation.gathered.deferred import Deferred, multiply_deferred
from hardstep.evaluation.gathered.outer import Outer, multiply_both
from hardstep.evaluation.gathered.places import Mixed, Place
from hardstep.evaluation.gathered.reader import Reader
from hardstep.evaluation.gathered.scene import Call, Scene
from hardstep.evaluation.incremental.columns import Column
from hardstep.evaluation.trace.nodes import Node


def call_product(node: Node, scene: Scene) -> Call:
    """x·W + b with examples in the rows of x."""
    *added, left, right = (argument.index for argument in node.args)
    bias = added[0] if added else None
    place = scene.places[left]
    if place is None or place.axis != 0 or scene.places[right]:
        raise Mixed(f"{node.name} of examples with examples")
    if bias is not None and (scene.places[bias] or scene.base(bias).dim() != 1):
        raise Mixed(f"{node.name} with a matrix added")
    if any(scale != 1 for scale in node.kwargs.values()):
        raise Mixed(f"{node.name} with a scale")
    out, last = node.outputs[0], len(scene.shape(left)) - 1

    def run(read: Reader) -> tuple[Tensor | Outer]:
        column, weight = read.column(left), read.env.get(right)
        fixed = weight is None and not (bias is not None and read.is_changed(bias))
        if column is not None and fixed and column.axis == 1:
            return (_add_unit(read, out, left, right, column),)
        if weight is not None and not isinstance(weight, Column):
            raise Mixed(f"{node.name} with a weight for each candidate")
        value = read.read(left)
        if fixed and bias is not None and read.adds_later:
            key = ("product", out)
            return (Outer(_multiply(read, value, right, None), (), None, scene.base(bias), key),)
        result = _multiply(read, value, right, bias)
        return (_correct(read, result, value, right, weight, bias) if weight else result,)

    def carry(read: Reader) -> Outer | None:
        outer = read.outer(left)
        if outer is None or any(read.is_changed(i) for i in (right, *added)):
            return None
        if outer.scale is None and outer.shift is not None:
            return None
        key = outer.key and (outer.key, out)
        if outer.key == ():
            base = read.base_result(out)
        elif outer.scale is None:
            base = _multiply(read, outer.base, right, bias)
        else:
            base = read.lifts.derive(key, lambda: outer.base @ scene.base(right))
        vector = None if bias is None else scene.base(bias)
        return outer.multiply(base, scene.base(right), vector, key)

    def defer(read: Reader) -> Deferred | None:
        if any(read.is_changed(i) for i in (right, *added)):
            return None
        vector = None if bias is None else scene.base(bias)
        return Deferred(read.read(left), scene.base(right), vector, tuple(range(last + 1)))

    def track(dim: int) -> Mapping[int, int]:
        if dim >= last:
            raise Mixed("the units of a product")
        return {left: dim}

    inner = scene.base(left).shape[-1]
    return Call([place], run, track, carry=carry, defer=defer, inner=inner)


def _add_unit(read: Reader, out: int, left: int, right: int, column: Column) -> Outer:
    """One changed unit of x adds a multiple of one row of W."""
    delta = read.delta(left, column).unsqueeze(-1)
    rows = read.by_candidate(read.scene.base(right)[column.unit])
    rows = rows.reshape(*rows.shape[:2], *[1] * (delta.dim() - 3), rows.shape[-1])
    return Outer(read.base_result(out), ((delta, rows),))


def _multiply(read: Reader, value: Tensor, right: int, bias: int | None) -> Tensor:
    """One product for all candidates, with the base's W."""
    matrix = read.scene.base(right)
    flat = value.reshape(-1, value.shape[-1])
    if bias is None or read.is_changed(bias):
        result = flat @ matrix
    else:
        result = torch.addmm(read.scene.base(bias), flat, matrix)
    result = result.reshape(*value.shape[:-1], matrix.shape[1])
    if bias is None or not read.is_changed(bias):
        return result
    return result + _widen(read.per_candidate(bias), result.dim())


def _widen(values: Tensor, ndim: int) -> Tensor:
    """(lead, units) to be broadcast with (lead, …, units)."""
    return values.reshape(*values.shape[:2], *[1] * (ndim - values.dim()), *values.shape[2:])


def _correct(
    read: Reader, result: Tensor, value: Tensor, right: int, weight: Column, bias: int | None
) -> Tensor:
    """A product with the base's W where each candidate changes a row or a column of W."""
    new = read.by_candidate(weight.slices)
    unit = read.by_candidate(weight.unit)
    if weight.axis == 0:
        old = read.by_candidate(read.scene.base(right)[weight.unit])
        at = unit.reshape(*unit.shape, *[1] * (value.dim() - 2))
        at = at.expand(*result.shape[:-1], 1)
        factor = value.expand(*result.shape[:-1], value.shape[-1]).gather(-1, at)
        return result + factor * _widen(new - old, result.dim())
    columns = (value * _widen(new, value.dim())).sum(dim=-1, keepdim=True)
    at = unit.reshape(*unit.shape, *[1] * (columns.dim() - 2)).expand(columns.shape)
    if bias is not None:
        changed = read.is_changed(bias)
        vector = read.per_candidate(bias) if changed else read.scene.base(bias)
        wide = _widen(vector, columns.dim()) if changed else vector
        columns = columns + wide.expand(*columns.shape[:-1], wide.shape[-1]).gather(-1, at)
    return result.expand(*columns.shape[:-1], result.shape[-1]).scatter(-1, at, columns)


def _call_rows(node: Node, scene: Scene, left: int, right: int) -> Call:
    """Matrices with examples in their rows, times matrices that all share.

    A layer of values that are not contiguous is such a product, with copies of one matrix.
    """
    place, alike = scene.places[left], scene.base(right).stride(0) == 0
    if place is None or place.axis != 1:
        raise Mixed(f"{node.name} over examples")
    last = len(scene.shape(left)) - 1

    def run(read: Reader) -> tuple[Tensor]:
        if read.is_changed(right):
            raise Mixed(f"{node.name} of two factors that change")
        value, matrix = read.read(left), read.scene.base(right)
        if alike:
            flat = value.reshape(-1, value.shape[-1]) @ matrix[0]
            return (flat.reshape(*value.shape[:-1], -1),)
        front = value.movedim(2, 0)
        flat = torch.bmm(front.reshape(len(front), -1, front.shape[-1]), matrix)
        return (flat.reshape(*front.shape[:-1], -1).movedim(0, 2),)

    def carry(read: Reader) -> Outer | None:
        outer = read.outer(left)
        if outer is None or not alike or not outer.is_recorded or read.is_changed(right):
            return None
        base = read.base_result(node.outputs[0])
        return outer.multiply(base, read.scene.base(right)[0], None, ())

    def defer(read: Reader) -> Deferred | None:
        if read.is_changed(right) or not alike:
            return None
        return Deferred(read.read(left), scene.base(right)[0], None, tuple(range(last + 1)))

    def track(dim: int) -> Mapping[int, int]:
        if dim >= last or (dim == 0 and not alike):
            raise Mixed("the units of a product")
        return {left: dim}

    inner = scene.base(left).shape[-1] if alike else 0
    return Call([place], run, track, carry=carry, defer=defer, inner=inner)


def call_batch_product(node: Node, scene: Scene) -> Call:
    """A product of matrices of one example; something may be added to it."""
    *added, left, right = (argument.index for argument in node.args)
    out = node.outputs[0]
    if scene.places[right] is None and not added:
        return _call_rows(node, scene, left, right)
    places = {scene.places[i] for i in (left, right)} - {None}
    if len(places) != 1:
        raise Mixed(f"{node.name} of examples on different axes")
    (place,) = places
    assert place is not None
    if place.axis != 0:
        raise Mixed(f"{node.name} over examples")
    scales = {"beta": 1, "alpha": 1} | dict(node.kwargs)
    rows = len(place.own_shape([2, 2, 2])) - 2  # where rows stand in one example

    def run(read: Reader) -> tuple[Tensor | Outer]:
        outer = None if added else _add_outer(read, out, left, right)
        if outer is not None:
            return (outer,)
        product = _multiply_undone(read, left, right)
        if product is None:
            product = torch.matmul(*(read.align(i, 3, place) for i in (left, right)))
        if added:
            shift = read.align(added[0], 3, place)
            product = scales["beta"] * shift + scales["alpha"] * product
        return (product,)

    def carry(read: Reader) -> Outer | None:
        if added or read.pairs is not None:
            return None
        factors = []
        for index in (left, right):
            one = read.outer(index) if read.is_changed(index) else read.unchanged(index)
            if one is None or not one.is_recorded or not read.has_examples(index):
                return None
            factors.append(one)
        return multiply_both(read.base_result(out), *factors)

    def track(dim: int) -> Mapping[int, int]:
        if added:
            raise Mixed(f"{node.name} with something added")
        if dim < rows:
            return {i: dim for i in (left, right) if scene.places[i]}
        return {left: dim} if dim == rows else {right: dim}

    for index in (left, right):
        if scene.places[index] is None and place.size > 1 and scene.base(index).shape[0] > 1:
            raise Mixed(f"{node.name} with a matrix that is no example's")
    alike = scene.places[left] == scene.places[right]
    meets = {left: right, right: left} if alike and not added else {}
    return Call([Place(0, place.outer, place.inner)], run, track, carry=carry, meets=meets)


def _multiply_undone(read: Reader, left: int, right: int) -> Tensor | None:
    """A product with a factor that has been left undone, without making it."""
    if not (read.has_examples(left) and read.has_examples(right)):
        return None
    own = read.deferred(right)
    if own is not None:
        return multiply_deferred(read.read(left), own)
    own, last = read.deferred(left), len(read.scene.shape(left)) - 1
    if own is None or left in read.asked:
        return None
    turned = own.permute([*range(last - 1), last, last - 1])
    found = multiply_deferred(read.read(right).transpose(-1, -2), turned)
    return None if found is None else found.transpose(-1, -2)


def _add_outer(read: Reader, out: int, left: int, right: int) -> Outer | None:
    """One changed unit of one factor, along which the product sums, adds an outer product."""
    units = {i: read.column(i) for i in (left, right)}
    column, axis = (units[left], 2) if units[left] else (units[right], 1)
    index, other = (left, right) if axis == 2 else (right, left)
    if column is None or column.axis != axis or read.is_changed(other):
        return None
    delta = read.delta(index, column)
    # Along the units of the other factor: its rows, or its columns if it is the left one.
    factor = read.pick_unit(read.base(other), column.unit, -2 if axis == 2 else -1)
    grown = delta.unsqueeze(-1 if axis == 2 else -2)
    other_factor = factor.unsqueeze(-2 if axis == 2 else -1)
    terms = (grown, other_factor) if axis == 2 else (other_factor, grown)
    return Outer(read.base_result(out), (terms,))
