"""Operations on examples that act number by number, or give the same numbers other names."""

from collections.abc import Callable, Mapping
from dataclasses import replace

from torch import Size, Tensor

from hardstep.evaluation.gathered.deferred import Deferred
from hardstep.evaluation.gathered.outer import Outer
from hardstep.evaluation.gathered.places import Mixed, Place, follow_view
from hardstep.evaluation.gathered.reader import Reader
from hardstep.evaluation.gathered.scene import ApartRule, Call, Scene
from hardstep.evaluation.trace.nodes import Node, Ref

Order = Callable[[Node, int], list[int]]  # the old dimensions of each new one, of so many


def find_common_place(node: Node, scene: Scene) -> Place:
    """The place of a result with which all arguments are broadcast."""
    out = scene.base(node.outputs[0])
    found: Place | None = None
    for index in node.inputs:
        own, value = scene.places[index], scene.base(index)
        if own is None:
            continue
        place = Place(own.axis + out.dim() - value.dim(), own.outer, own.inner)
        if value.shape[own.axis] != out.shape[place.axis] or found not in (None, place):
            raise Mixed(f"{node.name} of examples on different axes")
        found = place
    assert found is not None
    return found


def track_broadcast(node: Node, scene: Scene, place: Place, dim: int) -> dict[int, int]:
    """The dimension of each argument that is this one of the result."""
    ndim = scene.base(node.outputs[0]).dim()
    length = len(place.own_shape([2] * ndim))
    found = {}
    for index in node.inputs:
        shape = scene.shape(index)
        if scene.places[index] is None:
            axis = place.axis - (ndim - len(shape))
            if axis >= 0 and place.size == 1:
                del shape[axis]
        own = dim - (length - len(shape))
        if own >= 0 and shape[own] != 1:
            found[index] = own
    return found


def call_elementwise(node: Node, scene: Scene) -> Call:
    """The operation itself, on arguments that are broadcast with each other."""
    if len(node.outputs) != 1 or node.func is None:
        raise Mixed(f"{node.name} has no functional form")
    place, ndim = find_common_place(node, scene), scene.base(node.outputs[0]).dim()

    def run(read: Reader) -> tuple[Tensor]:
        args, kwargs = node.filled(lambda ref: read.align(ref.index, ndim, place))
        return (node.func(*args, **kwargs),)

    return Call([place], run, lambda dim: track_broadcast(node, scene, place, dim))


def call_addition(node: Node, scene: Scene) -> Call:
    """A sum; what is added to an outer product, and not changed, is in the base's result."""
    call, out = call_elementwise(node, scene), node.outputs[0]

    def carry(read: Reader) -> Outer | None:
        changed = [index for index in node.inputs if read.is_changed(index)]
        if len(changed) != 1 or node.kwargs or len(node.args) > 2:
            return None
        outer = read.outer(changed[0]) if scene.shape(changed[0]) == scene.shape(out) else None
        if outer is None or not outer.is_recorded:
            return None
        return replace(outer, base=read.base_result(out))

    def defer(read: Reader) -> Deferred | None:
        first, *others = node.args
        own = read.deferred(first.index) if isinstance(first, Ref) else None
        if own is None or node.kwargs or len(others) != 1 or not isinstance(others[0], Ref):
            return None
        index = others[0].index
        vector = scene.base(index)
        fixed = not (read.is_changed(index) or scene.places[index])
        return own.add(vector) if fixed and vector.shape == (own.shape[-1],) else None

    return replace(call, carry=carry, defer=defer)


def call_scaling(node: Node, scene: Scene) -> Call:
    """A product with, or a quotient by, something that is a number in every place."""
    call, out = call_elementwise(node, scene), node.outputs[0]

    def carry(read: Reader) -> Outer | None:
        index, alone = node.inputs[0], len(node.inputs) == 1 and not node.kwargs
        outer = read.outer(index) if alone and isinstance(node.args[0], Ref) else None
        if outer is None or not outer.is_recorded:
            return None
        terms = tuple((node.func(delta, node.args[1]), row) for delta, row in outer.terms)
        return replace(outer, base=read.base_result(out), terms=terms)

    def defer(read: Reader) -> Deferred | None:
        alone = len(node.inputs) == 1 and not node.kwargs and isinstance(node.args[0], Ref)
        own = read.deferred(node.inputs[0]) if alone else None
        return own and own.scale(lambda part: node.func(part, node.args[1]))

    return replace(call, carry=carry, defer=defer)


def call_copy(node: Node, scene: Scene) -> Call:
    """The same numbers in other memory."""
    call, index = call_elementwise(node, scene), node.inputs[0]
    return replace(
        call, carry=lambda read: read.outer(index), defer=lambda read: read.deferred(index)
    )


def call_expansion(node: Node, scene: Scene) -> Call:
    """Axes of size 1 become longer."""
    place, (index,) = find_common_place(node, scene), node.inputs
    out = node.outputs[0]
    ndim = scene.base(out).dim()

    def run(read: Reader) -> tuple[Tensor]:
        value = read.align(index, ndim, place)
        return (value.expand(*value.shape[:2], *read.own_shape(out)),)

    def carry(read: Reader) -> Outer | None:
        return read.outer(index) if scene.shape(index) == scene.shape(out) else None

    def defer(read: Reader) -> Deferred | None:
        return read.deferred(index) if scene.shape(index) == scene.shape(out) else None

    def track(dim: int) -> Mapping[int, int]:
        return track_broadcast(node, scene, place, dim)

    return Call([place], run, track, carry=carry, defer=defer)


def call_view(node: Node, scene: Scene) -> Call:
    """The same numbers in the same order."""
    index, out = node.inputs[0], node.outputs[0]
    place, old, new = scene.places[index], scene.base(index), scene.base(out)
    assert place is not None
    if old.dtype != new.dtype:
        raise Mixed("a view of the same bits as another type")
    found = follow_view(old.shape, new.shape, place, scene.num)
    before, after = place.own_shape(old.shape), found.own_shape(new.shape)

    def run(read: Reader) -> tuple[Tensor]:
        value = read.read(index)
        return (value.reshape(*value.shape[:2], *read.own_shape(out)),)

    def track(dim: int) -> Mapping[int, int]:
        passed, size = Size(after[:dim]).numel(), after[dim]
        for own, length in enumerate(before):
            if length == size and Size(before[:own]).numel() == passed and size > 1:
                return {index: own}
        raise Mixed("a view that merges or cuts the dimension")

    def carry(read: Reader) -> Outer | None:
        outer = None if read.asked or read.out else read.outer(index) or read.as_outer(index)
        return outer.reshape(before, after) if outer is not None and after else None

    def defer(read: Reader) -> Deferred | None:
        own = read.deferred(index)
        return own and own.reshape(read.own_shape(out))

    return Call([found], run, track, carry=carry, defer=defer)


def reorder(order: Order) -> ApartRule:
    """Dimensions in another order."""

    def rule(node: Node, scene: Scene) -> Call:
        (index,) = node.inputs
        place = scene.places[index]
        assert place is not None
        dims = order(node, scene.base(index).dim())
        found = Place(dims.index(place.axis), place.outer, place.inner)
        own = [d for d in map(place.own_dim, dims) if d is not None]

        def run(read: Reader) -> tuple[Tensor]:
            return (read.read(index).permute(0, 1, *[d + 2 for d in own]),)

        def carry(read: Reader) -> Outer | None:
            outer = None if read.asked or read.out else read.outer(index)
            return outer and outer.permute(own)

        def defer(read: Reader) -> Deferred | None:
            undone = read.deferred(index)
            return undone and undone.permute(own)

        return Call([found], run, lambda dim: {index: own[dim]}, carry=carry, defer=defer)

    return rule


def call_alike(node: Node, scene: Scene) -> Call:
    """A new value of which only the shape is given: random numbers, or to be written to."""
    out = scene.base(node.outputs[0])
    same = [i for i in node.inputs if scene.base(i).shape == out.shape]
    place = scene.places[same[0]] if same else None

    def run(read: Reader) -> tuple[Tensor]:
        return (read.base(node.outputs[0]),)

    return Call([place], run)
