"""A program as one module of LLVM assembly, and the rooms of its scratch memory."""

from collections.abc import Mapping
from dataclasses import dataclass

from hardstep.evaluation.events.program import Program, Room

ALIGN = 64


@dataclass(frozen=True)
class Code:
    """The text of a kernel, and where things are in its scratch memory."""

    text: str
    scratch: int
    rooms: Mapping[tuple[str, object], int]


def write_code(program: Program) -> Code:
    """The whole module: a function per kind of stage, and the loops that call them.

    Candidates are the inner loop: what they read of an example then stays in the cache.
    """
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
    calls, word = [], 0
    for stage in program.stages:
        calls.append(f"  %a{word} = getelementptr i64, ptr %args, i64 {word}")
        calls.append(f"  call void @{names[stage.key]}(ptr %a{word}, ptr %scratch, i64 %c, i64 %b)")
        word += len(stage.words)
    attributes = 'attributes #0 = { nounwind "prefer-vector-width"="512" '
    attributes += '"min-legal-vector-width"="512" }'
    text = "\n".join(
        [
            *functions,
            "define void @run(ptr %tables, i64 %first, i64 %last, i64 %rows, i64 %stride, "
            "ptr %scratch) #0 {",
            "entry:",
            "  %args = load ptr, ptr %tables",
            "  %second = getelementptr ptr, ptr %tables, i64 1",
            "  %work = load ptr, ptr %second",
            f"  call void @llvm.memset.p0.i64(ptr %scratch, i8 0, i64 {zeroed}, i1 false)",
            "  br label %examples",
            "examples:",
            "  %b = phi i64 [ 0, %entry ], [ %b_next, %example_end ]",
            "  br label %candidates",
            "candidates:",
            "  %c = phi i64 [ %first, %examples ], [ %c_next, %candidates ]",
            "  store i64 0, ptr %scratch",
            *calls,
            "  %work_at = getelementptr i64, ptr %work, i64 %c",
            "  %before = load i64, ptr %work_at",
            "  %own = load i64, ptr %scratch",
            "  %done = add i64 %before, %own",
            "  store i64 %done, ptr %work_at",
            "  %c_next = add i64 %c, 1",
            "  %c_done = icmp sge i64 %c_next, %last",
            "  br i1 %c_done, label %example_end, label %candidates",
            "example_end:",
            "  %b_next = add i64 %b, 1",
            "  %b_done = icmp sge i64 %b_next, %rows",
            "  br i1 %b_done, label %end, label %examples",
            "end:",
            "  ret void",
            "}",
            "declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)",
            *sorted(declarations),
            attributes,
            "",
        ]
    )
    return Code(text, total, rooms)


def _place_rooms(program: Program) -> tuple[dict[tuple[str, object], int], int, int]:
    """Offsets in scratch memory; what must start as zero comes first."""
    rooms: dict[tuple[str, object], int] = {}
    sizes: dict[tuple[str, object], int] = {}
    for slot in program.slots:
        vectors = slot.size // program.lanes
        sizes["touched", slot] = vectors
        sizes["count", slot] = 8
        sizes["new", slot] = slot.size * slot.kind.num_bytes
        sizes["list", slot] = 4 * vectors
    for stage in program.stages:
        for word in stage.words:
            if isinstance(word, Room) and (word.part, word.owner) not in sizes:
                needed = {"mark": stage.work, "work": 4 * stage.work}
                sizes[word.part, word.owner] = needed[word.part]
    place = ALIGN  # the first word counts operations
    for zero in (True, False):
        for key, size in sizes.items():
            if (key[0] in ("touched", "count", "mark")) == zero:
                rooms[key] = place
                place += -(-size // ALIGN) * ALIGN
        if zero:
            zeroed = place
    return rooms, zeroed, place
