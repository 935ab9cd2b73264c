"""The stage where a changed filter meets the pictures: patches times what changes of it.

A channel changes by the product of its example's patches with the changes of its filter and bias.
A kernel finds it when it needs it, so that it never stands in memory; members of a group share the
patches.
"""

from typing import NamedTuple

from hardstep.evaluation.events.joint import JointWriter
from hardstep.evaluation.events.writer import SlotNames
from hardstep.evaluation.fused.emit_vectors import Value
from hardstep.evaluation.fused.expressions import Kind


class Member(NamedTuple):
    """What one candidate of a group changes."""

    slot: SlotNames
    line: Value  # how its filter's weights and its bias change
    patches: Value  # of this example, and of the filter's group
    first: Value  # vector of its channel


def write_filter(w: JointWriter, kind: Kind, vectors: int, is_grouped: bool) -> None:
    """What is added to one channel of every member.

    Args:
        w: Of the stage.
        kind: Of the numbers.
        vectors: Of a channel.
        is_grouped: Whether filters of several groups read several patches.
    """
    slots = w.slots(kind)
    lines, units, num_candidates = w.pointer(), w.pointer(), w.pointer()
    taps, patches = w.word(), w.line_of("%b")
    each, size = w.word(), w.word()  # filters of a group, numbers of its patches
    present = w.find_members()
    # Behind the last candidate stands a line of zeros, for members that are not there.
    nobody = w.read("i64", num_candidates, "0")
    members = []
    for number, slot in enumerate(slots):
        own = w.let(f"add i64 %c, {number}")
        here = w.let(f"icmp slt i64 {number}, {present}")
        row = w.let(f"select i1 {here}, i64 {own}, i64 {nobody}")
        unit = w.read("i64", units, row)
        line, read = w.offset(kind, lines, w.let(f"mul i64 {row}, {taps}")), patches
        if is_grouped:
            group = w.let(f"udiv i64 {unit}, {each}")
            read = w.offset(kind, patches, w.let(f"mul i64 {group}, {size}"))
        members.append(Member(slot, line, read, w.let(f"mul i64 {unit}, {vectors}")))
    at = w.zero()
    most = w.find_size(vectors)
    for few in [most, vectors % most] if vectors % most else [most]:
        with w.advance(at, str(vectors), few) as vector:
            _add_vectors(w, members, taps, vectors, vector, few)


def _add_vectors(
    w: JointWriter, members: list[Member], taps: Value, vectors: int, first: Value, few: int
) -> None:
    """Some vectors of a channel, for all members."""
    kind, shared = members[0].slot.kind, len({member.patches for member in members}) == 1
    sums = [[w.variable(kind) for _ in range(few)] for _ in members]
    for total in (total for own in sums for total in own):
        w.store(kind, w.constant(0.0, kind), total, 64)
    with w.loop("0", taps) as tap:
        place = w.let(f"add i64 {w.let(f'mul i64 {tap}, {vectors}')}, {first}")
        factors = [w.splat(w.read(kind.element, member.line, tap), kind) for member in members]
        rows = [w.vector_at(kind, member.patches, place) for member in members]
        for number in range(few):
            for n, factor in enumerate(factors):
                if n == 0 or not shared:
                    pixels = w.load_vector(kind, rows[n], str(number))
                total = w.load(kind, sums[n][number], 64)
                w.store(kind, w.fma(kind, factor, pixels, total), sums[n][number], 64)
    for member, own in zip(members, sums, strict=True):
        for number, total in enumerate(own):
            vector = w.let(f"add i64 {w.let(f'add i64 {member.first}, {first}')}, {number}")
            old = w.load_vector(kind, member.slot.base, vector)
            new = w.binary("fadd", kind, old, w.load(kind, total, 64))
            with w.when(w.any(w.differs(kind, new, old))):
                w.store_vector(kind, new, member.slot.new, vector)
                w.touch(member.slot, vector)
