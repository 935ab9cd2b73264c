"""A program as one module of LLVM assembly, and the rooms of its scratch memory."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from hardstep.evaluation.events.loops import Call, write_loops, write_phases
from hardstep.evaluation.events.program import (
    Fixed,
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


@dataclass(frozen=True)
class Code:
    """The text of a kernel, and its arguments, as far as no step has others."""

    text: str
    scratch: int  # bytes
    words: np.ndarray[Any, np.dtype[np.int64]]  # arguments; 0 where a step or a tile has its own
    of_step: list[tuple[Table | Stride, list[int]]]  # and which places it fills
    of_tile: list[tuple[PerTile, int]]

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
        place = f"  %a{word} = getelementptr i64, ptr %args, i64 {word}"
        calls.append(Call(place, names[stage.key], word, stage.waits))
        word += len(stage.words)
    if program.sums:
        loops = write_phases(calls, program.examples, zeroed, total, num_shared)
        total = num_shared + program.examples * total
    else:
        loops = write_loops(calls, zeroed)
    attributes = 'attributes #0 = { nounwind "prefer-vector-width"="512" '
    attributes += '"min-legal-vector-width"="512" }'
    memset = "declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)"
    text = "\n".join([*functions, *loops, memset, *sorted(declarations), attributes, ""])
    return Code(text, total, *_place_words(program, rooms, shared))


def _place_words(
    program: Program, rooms: Mapping[tuple[str, object], int], shared: Mapping[Sums, int]
) -> tuple[Any, list[tuple[Table | Stride, list[int]]], list[tuple[PerTile, int]]]:
    """Arguments that every step has, those of a step, each once, and those of a tile."""
    listed = [word for stage in program.stages for word in stage.words]
    words = np.zeros(len(listed), dtype=np.int64)
    of_step: dict[object, tuple[Table | Stride, list[int]]] = {}
    of_tile: list[tuple[PerTile, int]] = []
    for place, word in enumerate(listed):
        if isinstance(word, Room):
            words[place] = rooms[word.part, word.owner]
        elif isinstance(word, Shared):
            words[place] = shared[word.owner]
        elif isinstance(word, Fixed):
            words[place] = word.values.data_ptr()
        elif isinstance(word, int):
            words[place] = word
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


def _place_rooms(program: Program) -> tuple[dict[tuple[str, object], int], int, int]:
    """Offsets in scratch memory; what must start as zero comes first."""
    rooms: dict[tuple[str, object], int] = {}
    place = ALIGN  # the first word counts operations
    for key, size in _list_zeroed(program).items():
        rooms[key] = place
        place += _align(size)
    found, end = _share_rooms(program, place)
    return rooms | found, place, end


def _list_zeroed(program: Program) -> dict[tuple[str, object], int]:
    """Bytes of what every stage finds, and leaves, as zero."""
    sizes: dict[tuple[str, object], int] = {}
    for slot in program.slots:
        sizes["touched", slot] = slot.size // program.lanes
        sizes["count", slot] = 8
    for stage in program.stages:
        marks = [word for word in stage.words if isinstance(word, Room) and word.part == "mark"]
        sizes.update({("mark", word.owner): stage.work for word in marks})
    return sizes


def _share_rooms(program: Program, first: int) -> tuple[dict[tuple[str, object], int], int]:
    """Rooms of what only some stages need; one that nobody needs any more is used again.

    Fewer rooms stay in the cache.
    """
    sizes, spans = _list_shared(program)
    rooms: dict[tuple[str, object], int] = {}
    taken: list[tuple[int, int, int]] = []  # first and last byte, last stage
    for key in sorted(sizes, key=lambda key: spans[key][0]):
        begin, end = spans[key]
        size, place = _align(sizes[key]), first
        for low, high, last in sorted(taken):
            if last >= begin and low < place + size and place < high:
                place = high
        rooms[key] = place
        taken.append((place, place + size, end))
    return rooms, max([first, *(high for _, high, _ in taken)])


def _list_shared(
    program: Program,
) -> tuple[dict[tuple[str, object], int], dict[tuple[str, object], tuple[int, int]]]:
    """Bytes of new values and lists, and the first and last stage that uses them."""
    sizes: dict[tuple[str, object], int] = {}
    spans: dict[tuple[str, object], tuple[int, int]] = {}
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
