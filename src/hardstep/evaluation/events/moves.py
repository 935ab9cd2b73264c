"""Numbers that move to other places: concatenation, padding, another layout, a wider shape.

What an operation does to places is found by running it on numbers that name them.
"""

from functools import partial

import torch
from torch import Tensor

from hardstep.evaluation.events.layouts import Layout, pad, rows_of_pixels
from hardstep.evaluation.events.maps import list_by
from hardstep.evaluation.events.planner import Planner, Value, behind
from hardstep.evaluation.events.program import Fixed, Lookup, Slot, Table, Word, slot_words
from hardstep.evaluation.events.stages import write_move
from hardstep.evaluation.fused.expressions import Unfusable
from hardstep.evaluation.trace.nodes import Node, Ref


def follow_move(planner: Planner, node: Node) -> None:
    """Every number of the result is one of an operand's, or does not change."""
    moved = [index for index in dict.fromkeys(node.inputs) if index in planner.values]
    room = max(planner.values[index].layout.size for index in moved)
    names = {index: _name_places(planner, index, n, room) for n, index in enumerate(moved)}

    def operand(ref: Ref) -> Tensor:
        value = planner.base(ref.index)
        if ref.index in names:
            return names[ref.index]
        return torch.zeros_like(value).double() if value.is_floating_point() else value

    args, kwargs = node.filled(operand)
    _place(planner, node.outputs[0], node.func(*args, **kwargs), moved, room)


def widen(planner: Planner, index: int, out: int) -> Value:
    """A changed operand in the shape of an element-wise result."""
    room, shape = planner.values[index].layout.size, planner.base(out).shape
    named = _name_places(planner, index, 0, room).expand(shape)
    layout, axis = _lay_out(planner, named, room)
    source, _ = planner.slot(index)
    base = Table(
        ("wide", index, tuple(shape), layout.key),
        lambda values: layout.lay_out(values(index).expand(shape)),
    )
    target = planner.keep(Slot(source.kind, layout, behind(source), base))
    flat = named.select(axis, 0).flatten().long() - 1
    move_events(planner, source, target, flat % room, layout.places.flatten())
    return Value(target, layout)


def _place(planner: Planner, out: int, named: Tensor, moved: list[int], room: int) -> None:
    """Move numbers to where their names stand in `named`."""
    layout, axis = _lay_out(planner, named, room)
    slots = [planner.slot(index)[0] for index in moved]
    target = planner.new_slot(out, layout, max(map(behind, slots)))
    flat, places = named.select(axis, 0).flatten().long() - 1, layout.places.flatten()
    for number, slot in enumerate(slots):
        own = (flat >= 0) & (flat // (planner.program.examples * room) == number)
        move_events(planner, slot, target, flat[own] % room, places[own])
    planner.values[out] = Value(target, layout)


def _lay_out(planner: Planner, named: Tensor, room: int) -> tuple[Layout, int]:
    """A fresh layout for what an operation returns, and its axis of examples."""
    axis, lanes = _find_examples(named, planner.program.examples, room), planner.program.lanes
    shape, size = tuple(named.select(axis, 0).shape), named.select(axis, 0).numel()
    if axis == 0 and len(shape) > 1:
        return rows_of_pixels(shape, lanes), axis
    return Layout(torch.arange(size).reshape(shape), pad(size, lanes), axis), axis


def move_events(planner: Planner, source: Slot, target: Slot, old: Tensor, new: Tensor) -> None:
    """A stage that carries numbers from old places to new ones."""
    order = old.argsort(stable=True)
    words: list[Word] = [*slot_words(source), *slot_words(target)]
    words += [Fixed(list_by(old[order], source.size)), Fixed(new[order].int().contiguous())]
    write = partial(write_move, kind=source.kind)
    planner.stage("move", write, words, target.level - 0.5, [source, target])


def align(planner: Planner, value: Value, layout: Layout) -> Value:
    """A changed value at the places of another layout of the same shape."""
    old = value.layout
    if old.key == layout.key:
        return value
    source = planner.hand_on(value)
    whole = source.base.make

    def make(values: Lookup) -> Tensor:
        return layout.lay_out(old.restore(whole(values)).movedim(0, old.axis))

    base = Table(("aligned", source.base.key, old.key, layout.key), make)
    target = planner.keep(Slot(source.kind, layout, behind(source), base))
    move_events(planner, source, target, old.places.flatten(), layout.places.flatten())
    return Value(target, layout)


def _name_places(planner: Planner, index: int, number: int, room: int) -> Tensor:
    """A value's places, told apart by operand and example; 0 is left for what does not change."""
    layout, examples = planner.values[index].layout, planner.program.examples
    first = (number * examples + torch.arange(examples)) * room + 1
    named = layout.places + first.reshape(-1, *[1] * layout.places.dim())
    return named.movedim(0, layout.axis).double()


def _find_examples(named: Tensor, examples: int, room: int) -> int:
    """The axis along which nothing but the example differs."""
    for axis in (axis for axis, size in enumerate(named.shape) if size == examples):
        line = named.movedim(axis, 0)
        step = torch.arange(examples).reshape(-1, *[1] * (named.dim() - 1)) * room
        if torch.equal(line, torch.where(line > 0, line[:1] + step, 0)):
            return axis
    raise Unfusable("examples are mixed")
