"""A program as one module of LLVM assembly, and the rooms of its scratch memory."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from hardstep.evaluation.events.loops import Call, write_loops, write_phases
from hardstep.evaluation.events.program import (
    Fixed,
    NextMember,
    PerTile,
    Program,
    Room,
    Shared,
    Slot,
    Stride,
    Sums,
    Table,
)

ALIGN = 64
Words = np.ndarray[Any, np.dtype[np.int64]]  # (members of a group, arguments)
RoomKey = tuple[str, object]  # a part of a slot or of a stage's room for work


@dataclass(frozen=True)
class Code:
    """The text of a kernel, and its arguments, as far as no step has others."""

    text: str
    scratch: int  # bytes
    words: Words  # 0 where a step or a tile has its own
    of_step: list[tuple[Table | Stride, list[int]]]  # and which places it fills
    of_tile: list[tuple[PerTile, int]]

    @cached_property
    def places_of_step(self) -> list[int]:
        """Where each of its arguments goes, one after the other."""
        return [place for _, places in self.of_step for place in places]

    @cached_property
    def tables(self) -> list[Table]:
        """What it reads of a step."""
        return [word for word, _ in self.of_step if isinstance(word, Table)]


def write_code(program: Program) -> Code:
    """The whole module: a function per kind of stage, and the loops that call them."""
    names: dict[tuple[object, ...], str] = {}
    functions: list[str] = []
    declarations: set[str] = set()
    for stage in program.stages:
        if stage.key in names:
            continue
        names[stage.key] = f"f{len(names)}"
        parts = stage.text(names[stage.key]).split("\0")
        functions.append(parts[0])
        declarations.update(part.strip() for part in parts[1:])
    rooms, zeroed, total = _place_rooms(program)
    shared, num_shared = _place_sums(program)
    calls, word = [], 0
    for stage in program.stages:
        is_common = stage.waits if program.sums else stage.is_joint
        calls.append(Call(names[stage.key], word, is_common))
        word += len(stage.words)
    if program.sums:
        loops = write_phases(calls, program.examples, zeroed, total, num_shared)
        total = num_shared + program.examples * total
    else:
        loops = write_loops(calls, zeroed, program.together, word)
    attributes = 'attributes #0 = { nounwind "prefer-vector-width"="512" '
    attributes += '"min-legal-vector-width"="512" }'
    memset = "declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)"
    text = "\n".join([*functions, *loops, memset, *sorted(declarations), attributes, ""])
    return Code(text, total, *_place_words(program, rooms, shared))


def _place_words(
    program: Program, rooms: list[dict[RoomKey, int]], shared: Mapping[Sums, int]
) -> tuple[Words, list[tuple[Table | Stride, list[int]]], list[tuple[PerTile, int]]]:
    """Arguments that every step has, those of a step, each once, and those of a tile."""
    listed = [word for stage in program.stages for word in stage.words]
    words = np.zeros((program.together, len(listed)), dtype=np.int64)
    of_step: dict[object, tuple[Table | Stride, list[int]]] = {}
    of_tile: list[tuple[PerTile, int]] = []
    for place, word in enumerate(listed):
        if isinstance(word, Room):
            words[:, place] = [own[word.part, word.owner] for own in rooms]
        elif isinstance(word, Shared):
            words[:, place] = shared[word.owner]
        elif isinstance(word, Fixed):
            words[:, place] = word.values.data_ptr()
        elif isinstance(word, NextMember):
            words[:, place] = len(listed)
        elif isinstance(word, int):
            words[:, place] = word
        elif isinstance(word, PerTile):
            of_tile.append((word, place))
        else:
            key = (Stride, word.table.key) if isinstance(word, Stride) else (Table, word.key)
            of_step.setdefault(key, (word, []))[1].append(place)
    return words, list(of_step.values()), of_tile


def _place_sums(program: Program) -> tuple[dict[Sums, int], int]:
    """Offsets in what a candidate's examples share, and its size."""
    shared: dict[Sums, int] = {}
    place = 0
    for sums in program.sums:
        shared[sums] = place
        place += _align(sums.num_bytes)
    return shared, place


def _place_rooms(program: Program) -> tuple[list[dict[RoomKey, int]], int, int]:
    """Offsets in scratch memory, for each member; what must start as zero comes first.

    Members share a room that nobody needs beyond the stages between two joint ones.
    """
    rooms: list[dict[RoomKey, int]] = [{} for _ in range(program.together)]
    place = ALIGN  # the first words count operations, and the last one counts members
    lasting = _list_lasting(program)
    for key, size in _list_zeroed(program).items():
        for group in _split_members(rooms, key[1] in lasting):
            for member in group:
                member[key] = place
            place += _align(size)
    return rooms, place, _share_rooms(program, rooms, lasting, place)


def _split_members(
    rooms: list[dict[RoomKey, int]], is_lasting: bool
) -> list[list[dict[RoomKey, int]]]:
    """Those of the members that have a room together."""
    return [[member] for member in rooms] if is_lasting else [rooms]


def _list_zeroed(program: Program) -> dict[RoomKey, int]:
    """Bytes of what every stage finds, and leaves, as zero."""
    sizes: dict[RoomKey, int] = {}
    for slot in program.slots:
        sizes["touched", slot] = slot.size // program.lanes
        sizes["count", slot] = 8
    for stage in program.stages:
        marks = [word for word in stage.words if isinstance(word, Room) and word.part == "mark"]
        sizes.update({("mark", word.owner): stage.work for word in marks})
    return sizes


def _share_rooms(
    program: Program, rooms: list[dict[RoomKey, int]], lasting: Mapping[object, tuple[int, int]],
    first: int,
) -> int:  # fmt: skip
    """Place what only some stages need; a room that nobody needs any more is used again.

    Fewer rooms stay in the cache. Returns the end.
    """
    sizes, spans = _list_shared(program)
    spans.update({key: lasting[key[1]] for key in spans if key[1] in lasting})
    taken: list[tuple[int, int, int]] = []  # first and last byte, last stage
    for key in sorted(sizes, key=lambda key: spans[key][0]):
        begin, end = spans[key]
        size = _align(sizes[key])
        for group in _split_members(rooms, key[1] in lasting):
            place = first
            for low, high, last in sorted(taken):
                if last >= begin and low < place + size and place < high:
                    place = high
            for member in group:
                member[key] = place
            taken.append((place, place + size, end))
    return max([first, *(high for _, high, _ in taken)])


def _list_lasting(program: Program) -> dict[object, tuple[int, int]]:
    """Slots that joint stages read or write, or that outlast one: from which stage to which.

    While a member goes through its stages, what others hold in such slots must stay; so they are
    kept from the joint stage before their first one to that behind their last one.
    """
    if program.together == 1:
        return {}
    joints = [-1, *(n for n, stage in enumerate(program.stages) if stage.is_joint)]
    ends = [*joints[1:], len(program.stages)]
    _, spans = _list_shared(program)
    found: dict[object, tuple[int, int]] = {}
    for (part, owner), (begin, end) in spans.items():
        if part == "new" and any(begin <= joint <= end for joint in joints):
            before = max(joint for joint in joints if joint <= begin)
            behind = min(joint for joint in ends if joint >= end)
            found[owner] = before, behind
    return found


def _list_shared(program: Program) -> tuple[dict[RoomKey, int], dict[RoomKey, tuple[int, int]]]:
    """Bytes of new values and lists, and the first and last stage that uses them."""
    sizes: dict[RoomKey, int] = {}
    spans: dict[RoomKey, tuple[int, int]] = {}
    for number, stage in enumerate(program.stages):
        for word in stage.words:
            if not isinstance(word, Room) or word.part not in ("new", "list", "work"):
                continue
            key = (word.part, word.owner)
            spans[key] = (spans.get(key, (number, number))[0], number)
            if isinstance(word.owner, Slot):
                numbers, vectors = word.owner.size, word.owner.size // program.lanes
                sizes[key] = (
                    numbers * word.owner.kind.num_bytes if word.part == "new" else 4 * vectors
                )
            else:
                sizes[key] = 4 * stage.work
    return sizes, spans


def _align(size: int) -> int:
    return -(-size // ALIGN) * ALIGN
