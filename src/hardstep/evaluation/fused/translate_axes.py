"""Operations along the axis of a value, as expressions: views, products, reductions, losses."""

from collections.abc import Callable

from hardstep.evaluation.fused.expressions import (
    Access,
    Apply,
    Expr,
    Fn,
    Graph,
    Kind,
    Reduction,
    Unfusable,
)
from hardstep.evaluation.fused.tables import (
    Flat,
    LabelWeight,
    Matrix,
    PerExample,
    PickedScore,
    Weight,
)
from hardstep.evaluation.fused.translate import (
    Changed,
    Closing,
    Lowering,
    Translator,
    find_argument,
)
from hardstep.evaluation.trace.record import Node


def lower_view(t: Translator, node: Node) -> None:
    """A view that keeps the examples; the followed axis must stay an axis of its own."""
    (index,) = node.inputs
    out = node.outputs[0]
    new, found = t.base(out).shape, t.changed(index)
    if len(new) == 0 or new[0] != t.program.num_examples:
        raise Unfusable(f"{node.name} across examples")
    if t.base(index).dtype != t.base(out).dtype:
        raise Unfusable(f"{node.name} of the same bits as another type")
    if node.name == "expand" and len(new) != t.base(index).dim() and index not in t.vectors:
        raise Unfusable("expand that puts an axis before the examples")
    if found.axis is None:
        t.values[out] = Changed(found.expr)
        return
    size = t.base(index).shape[found.axis]
    if node.name == "expand":
        same = new[found.axis] == size
        kept = Changed(found.expr, found.axis, found.column)
        t.values[out] = kept if same else t.only_unit(index)
        return
    places = [d - len(new) for d in range(1, len(new)) if new[d] == size]
    if size == 1 and len(places) != 1 and new[1:].numel() == 1:
        t.values[out] = t.only_unit(index)
        return
    if len(places) != 1 or new[1:].numel() != size:
        raise Unfusable(f"{node.name} mixes the followed axis with others")
    t.values[out] = Changed(found.expr, places[0], found.column)


def _lower_product(t: Translator, node: Node) -> None:
    """x·W + b with x changed: a rank-one update of a column, or a product of what differs."""
    refs = [arg.index for arg in node.args]
    left, right = refs[-2:]
    out = node.outputs[0]
    changed = set(node.inputs) & t.values.keys()
    if any(scale != 1 for scale in node.kwargs.values()):
        raise Unfusable(f"{node.name} with a scale")
    if t.base(out).dim() != 2 or t.base(out).shape[0] != t.program.num_examples:
        raise Unfusable(f"{node.name} across examples")
    if changed == {refs[0]} and refs[0] in t.vectors and node.name == "addmm":
        _shift(t, refs[0], out)
        return
    if changed != {left} or left in t.vectors:
        raise Unfusable(f"{node.name}: more than the left factor changes")
    if node.name == "addmm" and t.base(refs[0]).dim() == 2 and t.base(refs[0]).shape[0] != 1:
        raise Unfusable("addmm with a matrix added")
    kind, size = t.kind(out), t.base(out).shape[1]
    if not kind.is_float:
        raise Unfusable(f"{node.name} of {kind}")
    found, weight = t.changed(left), t.program.table(Weight(right))
    t.program.updated.add(out)
    if found.column:
        t.leave_axis(found.expr, t.at_unit(left))
        delta = t.g.apply(Fn.SUB, found.expr, t.at_unit(left))
        factor = t.g.read(Access.UNIT_AXIS, kind, weight, size)
        update = t.g.apply(Fn.MUL, delta, factor)
        t.values[out] = Changed(t.g.apply(Fn.ADD, t.matrix(out), update), -1)
        return
    if found.expr.domain is None:
        raise Unfusable(f"{node.name} of a value that does not vary along its axis")
    change = t.g.apply(Fn.SUB, found.expr, t.matrix(left))
    base = t.program.table(Matrix(out))
    t.values[out] = Changed(t.g.product(change, size, weight, base), -1)


def _shift(t: Translator, bias: int, out: int) -> None:
    """x·W + b with only the bias changed."""
    new = t.changed(bias).expr
    old = t.g.read(Access.AXIS, new.kind, t.program.table(Flat(bias)), new.domain)
    shift = t.g.apply(Fn.SUB, new, old)
    t.program.updated.add(out)
    t.values[out] = Changed(t.g.apply(Fn.ADD, t.matrix(out), shift), -1)


def _lower_softmax(t: Translator, node: Node) -> None:
    index, out = node.inputs[0], node.outputs[0]
    value = _read_along(t, node, index, node.args[1])
    t.values[out] = Changed(build_softmax(t.g, node.name, value), t.changed(index).axis)


def build_softmax(g: Graph, name: str, value: Expr) -> Expr:
    """Softmax or its logarithm along the expression's axis."""
    shifted = g.apply(Fn.SUB, value, g.reduce(Reduction.MAX, value))
    total = g.reduce(Reduction.TOTAL, g.apply(Fn.EXP, shifted))
    if name == "_softmax":
        return g.apply(Fn.DIV, g.apply(Fn.EXP, shifted), total)
    return g.apply(Fn.SUB, shifted, g.apply(Fn.LOG, total))


def _read_along(t: Translator, node: Node, index: int, dim: int) -> Expr:
    """The operand's expression, if the operation runs along its axis."""
    found, ndim = t.dense(index), t.base(index).dim()
    if found.axis is None or found.axis != dim % ndim - ndim or found.expr.domain is None:
        raise Unfusable(f"{node.name} along an axis that is not followed")
    return found.expr


def _lower_best(t: Translator, node: Node) -> None:
    """Maximum, minimum and their places."""
    dim = find_argument(node, 1, "dim", None)
    if isinstance(dim, list):
        dim = dim[0] if len(dim) == 1 else None
    if dim is None:
        raise Unfusable(f"{node.name} over everything")
    value = _read_along(t, node, node.inputs[0], dim)
    if not value.kind.is_float:
        raise Unfusable(f"{node.name} of {value.kind}")
    best = (Reduction.MAX, Reduction.ARGMAX), (Reduction.MIN, Reduction.ARGMIN)
    extreme, place = (t.g.reduce(one, value) for one in best["max" not in node.name])
    for out, expr in zip(node.outputs, list_results(node, extreme, place), strict=True):
        t.values[out] = Changed(expr)


def list_results(node: Node, extreme: Expr, place: Expr) -> list[Expr]:
    """What a search for the best returns: its value, its place, or both."""
    results = {"argmax": [place], "argmin": [place], "amax": [extreme], "amin": [extreme]}
    return results.get(node.name, [extreme, place])


def _lower_sum(t: Translator, node: Node) -> None:
    """A sum or mean along the followed axis, or over the examples, which closes the chain."""
    index, out = node.inputs[0], node.outputs[0]
    ndim = t.base(index).dim()
    dims = find_argument(node, 1, "dim", None)
    dims = [d % ndim for d in dims] if dims else list(range(ndim))
    if node.kwargs.keys() - {"dtype"} or t.kind(index) != t.kind(out):
        raise Unfusable(f"{node.name} with another type")
    count = t.base(index).numel() // t.base(out).numel() if node.name == "mean" else 1
    if 0 in dims:
        if t.base(out).numel() != 1:
            raise Unfusable(f"{node.name} over examples, but not over everything")
        _close_value(t, index, out, count)
        return
    if len(dims) != 1 or t.kind(index) is Kind.I64:
        raise Unfusable(f"{node.name} over several axes")
    total = t.g.reduce(Reduction.TOTAL, _read_along(t, node, index, dims[0]))
    if node.name == "mean":
        total = t.g.apply(Fn.DIV, total, t.g.constant(count, total.kind))
    t.values[out] = Changed(total)


def _close_value(t: Translator, index: int, out: int, count: int) -> None:
    """Everything added up: the differences of the changed examples, in double precision."""
    found = t.dense(index)
    if not found.expr.kind.is_float:
        raise Unfusable("a sum of integers")
    ndim = t.base(index).dim()
    old = t.read_shared(index, ndim, found.axis, column=False)
    new = found.expr
    if ndim > 1 and found.axis is None and t.base(index).numel() != t.program.num_examples:
        raise Unfusable("a sum over an axis along which nothing varies")
    _close_difference(t, out, new, old, count)


def _close_difference(t: Translator, out: int, new: Expr, old: Expr, count: float) -> None:
    close_sum(t, out, t.g.apply(Fn.SUB, t.g.cast(new, Kind.F64), t.g.cast(old, Kind.F64)), count)


def close_sum(t: Translator, out: int, difference: Expr, count: float) -> None:
    """A sum over examples of what an example adds to the base, divided by a count."""
    if difference.domain is not None:
        difference = t.g.reduce(Reduction.TOTAL, difference)
    t.program.closings.append(Closing(out, difference, count))
    t.closed.add(out)


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


def _lower_mse(t: Translator, node: Node) -> None:
    """Mean squared error against shared targets."""
    reduction = find_argument(node, 2, "reduction", 1)
    inputs = [arg.index for arg in node.args[:2]]
    out = node.outputs[0]
    shapes = {t.base(i).shape for i in inputs}
    if reduction == 0 or len(shapes) != 1 or t.base(inputs[0]).dim() > 2:
        raise Unfusable("mse_loss that is not reduced, or broadcasts")
    ndim, size = t.base(inputs[0]).dim(), t.base(inputs[0]).numel()
    axis = -1 if ndim == 2 else None

    def error(read: Callable[[int], Expr]) -> Expr:
        a, b = (t.g.cast(read(i), t.kind(out)) for i in inputs)
        gap = t.g.apply(Fn.SUB, a, b)
        return t.g.apply(Fn.MUL, gap, gap)

    def now(index: int) -> Expr:
        return t.dense(index).expr if index in t.values else before(index)

    def before(index: int) -> Expr:
        return t.read_shared(index, ndim, axis, column=False)

    _close_difference(t, out, error(now), error(before), size if reduction == 1 else 1)


ON_AXES: dict[str, Lowering] = {
    **dict.fromkeys(("view", "_unsafe_view", "squeeze", "expand"), lower_view),
    **dict.fromkeys(("mm", "addmm"), _lower_product),
    **dict.fromkeys(("_softmax", "_log_softmax"), _lower_softmax),
    **dict.fromkeys(("argmax", "argmin", "amax", "amin", "max", "min"), _lower_best),
    **dict.fromkeys(("sum", "mean"), _lower_sum),
    "nll_loss_forward": _lower_nll,
    "mse_loss": _lower_mse,
}
