"""Softmax of all numbers of an example, where one of them changed."""

from functools import partial

from hardstep.evaluation.events.layouts import Layout, pad
from hardstep.evaluation.events.planner import Planner, behind
from hardstep.evaluation.events.program import Fixed, Word, slot_words
from hardstep.evaluation.events.writer import Writer
from hardstep.evaluation.fused import emit_functions
from hardstep.evaluation.fused.emit_expressions import emit_extreme
from hardstep.evaluation.fused.emit_vectors import Value, literal
from hardstep.evaluation.fused.expressions import Fn, Kind, Unfusable
from hardstep.evaluation.trace.nodes import Node

MOST_VECTORS = 8  # that stay in registers
NODES = 3  # operations on a vector, counted like those of a group: shift, exponential, share


def follow_softmax(planner: Planner, node: Node, logarithm: bool) -> None:
    """The classes of an example, which stand in a few vectors."""
    slot, layout = planner.slot(node.inputs[0])
    lanes, size = planner.program.lanes, layout.places.numel()
    alone = layout.places.dim() == 1 and layout.axis == 0 and layout.is_unique
    if not alone or node.args[1] % 2 != 1 or planner.kind(node.outputs[0]) is not slot.kind:
        raise Unfusable(f"{node.name} of something else than classes")
    if slot.size > MOST_VECTORS * lanes or slot.size != pad(size, lanes):
        raise Unfusable(f"{node.name} of many classes")
    target = planner.new_slot(node.outputs[0], Layout(layout.places, slot.size), behind(slot))
    words: list[Word] = [*slot_words(slot), *slot_words(target), Fixed(layout.named_bits(lanes))]
    vectors = slot.size // lanes
    write = partial(write_softmax, kind=slot.kind, vectors=vectors, logarithm=logarithm)
    level, detail = target.level - 0.5, (vectors, logarithm)
    planner.stage("softmax", write, words, level, [slot, target], detail=detail)
    planner.put(node, target)


def write_softmax(w: Writer, kind: Kind, vectors: int, logarithm: bool) -> None:
    """Shares of the sum of exponentials, or their logarithms."""
    source, target = w.slot(kind), w.slot(kind)
    named = w.pointer()
    least, zero = w.constant(float("-inf"), kind), w.constant(0.0, kind)
    with w.when(w.let(f"icmp ne i64 {w.let(f'load i64, ptr {source.count}')}, 0")):
        w.count_work(str(vectors * NODES))
        masks = [_read_mask(w, named, v) for v in range(vectors)]
        values = [
            w.select(masks[v], kind, w.current(source, str(v)), least) for v in range(vectors)
        ]
        best = values[0]
        for value in values[1:]:
            best = emit_extreme(w, Fn.MAX, kind, value, best)
        most = _reduce(w, kind, "fmax", best)
        shifted = [w.binary("fsub", kind, value, most) for value in values]
        powers = [
            w.select(mask, kind, emit_functions.exp(w, kind, value), zero)
            for mask, value in zip(masks, shifted, strict=True)
        ]
        added = powers[0]
        for power in powers[1:]:
            added = w.binary("fadd", kind, added, power)
        total = _reduce(w, kind, "fadd", added)
        scale = emit_functions.log(w, kind, total) if logarithm else total
        for v in range(vectors):
            operands = (shifted[v], scale) if logarithm else (powers[v], scale)
            found = w.binary("fsub" if logarithm else "fdiv", kind, *operands)
            w.keep_if_new(target, str(v), w.select(masks[v], kind, found, zero))


def _read_mask(w: Writer, named: Value, vector: int) -> Value:
    """The lanes of a vector that hold a class."""
    bits = w.let(f"trunc i32 {w.read('i32', named, str(vector))} to i{w.lanes}")
    return w.let(f"bitcast i{w.lanes} {bits} to {w.type(Kind.I1)}")


def _reduce(w: Writer, kind: Kind, operation: str, value: Value) -> Value:
    """One number of all lanes, in every lane; sums are taken lane after lane."""
    typ, element = w.type(kind), kind.element
    name = f"@llvm.vector.reduce.{operation}.v{w.lanes}{kind.label}"
    start = f"{element} {literal(-0.0, kind)}, " if operation == "fadd" else ""
    w.intrinsics.add(f"declare {element} {name}({element + ', ' if start else ''}{typ})")
    return w.splat(w.let(f"call {element} {name}({start}{typ} {value})"), kind)
