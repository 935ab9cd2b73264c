"""The loops of a kernel over candidates and examples, which call its stages.

Without statistics over the batch, candidates are the inner loop: what they read of an example then
stays in the cache. They are taken in groups; the members of a group go through the stages up to a
joint one in turn, and together through that. With statistics, a candidate takes all examples
through one phase after the other, and every example keeps its changed values in scratch memory of
its own.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple

from hardstep.evaluation.events.joint import MEMBERS_AT

_HEAD = (
    "define void @run(ptr %tables, i64 %first, i64 %last, i64 %rows, i64 %stride, "
    "ptr %scratch) #0 {",
    "entry:",
    "  %args = load ptr, ptr %tables",
    "  %second = getelementptr ptr, ptr %tables, i64 1",
    "  %work = load ptr, ptr %second",
)


class Call(NamedTuple):
    """A stage, and where its arguments start."""

    function: str
    word: int
    is_common: bool  # once for all that go through a phase, behind it

    def write(self, turn: "Turn", args: str, name: str) -> list[str]:
        """The call; `name` is for its arguments."""
        return [
            f"  {name} = getelementptr i64, ptr {args}, i64 {self.word}",
            f"  call void @{self.function}(ptr {name}, ptr {turn.scratch}, ptr {turn.shared}, "
            f"i64 {turn.candidate}, i64 {turn.example})",
        ]


class Turn(NamedTuple):
    """What the stages of one turn of a loop are called with."""

    scratch: str
    shared: str
    candidate: str
    example: str


def write_loops(calls: list[Call], zeroed: int, together: int, words: int) -> list[str]:
    """Examples, and for each of them groups of candidates.

    Args:
        calls: The stages in their order.
        zeroed: Bytes of scratch memory that must start as zero.
        together: Members of a group.
        words: Arguments of a member.
    """
    phases = _split(calls)

    def own_turn(number: int) -> tuple[list[str], Turn]:
        lines = [
            f"  %c{number} = add i64 %c, %i{number}",
            f"  %at{number} = mul i64 %i{number}, {words}",
            f"  %args{number} = getelementptr i64, ptr %args, i64 %at{number}",
            *_count_work(f"%i{number}", f"%c{number}", f"j{number}"),
        ]
        return lines, Turn("%scratch", "null", f"%c{number}", "%b")

    return [
        *_HEAD,
        _zero("%scratch", zeroed),
        f"  %members_at = getelementptr i64, ptr %scratch, i64 {MEMBERS_AT}",
        "  br label %examples",
        "examples:",
        "  %b = phi i64 [ 0, %entry ], [ %b_next, %example_end ]",
        "  br label %candidates",
        "candidates:",
        f"  %c = phi i64 [ %first, %examples ], [ %c_next, %after{len(phases) - 1} ]",
        "  %left = sub i64 %last, %c",
        f"  %fewer = icmp slt i64 %left, {together}",
        f"  %members = select i1 %fewer, i64 %left, i64 {together}",
        "  store i64 %members, ptr %members_at",
        "  br label %before0",
        *_write_phases(phases, "%members", own_turn, Turn("%scratch", "null", "%c", "%b")),
        f"  %c_next = add i64 %c, {together}",
        "  %c_done = icmp sge i64 %c_next, %last",
        "  br i1 %c_done, label %example_end, label %candidates",
        "example_end:",
        "  %b_next = add i64 %b, 1",
        "  %b_done = icmp sge i64 %b_next, %rows",
        "  br i1 %b_done, label %end, label %examples",
        "end:",
        "  ret void",
        "}",
    ]


def write_phases(
    calls: list[Call], examples: int, zeroed: int, each: int, shared: int
) -> list[str]:
    """Candidates, and for each of them all examples, as often as a stage waits for them.

    Args:
        calls: The stages in their order.
        examples: Of the batch.
        zeroed: Bytes of an example's memory that must start as zero.
        each: Bytes of an example's memory.
        shared: Bytes that all examples of a candidate share; they come first.
    """
    phases = _split(calls)

    def own_turn(number: int) -> tuple[list[str], Turn]:
        lines = [
            f"  %at{number} = mul i64 %i{number}, {each}",
            f"  %room{number} = getelementptr i8, ptr %s0, i64 %at{number}",
            f"  %args{number} = getelementptr i64, ptr %args, i64 0",
        ]
        return lines, Turn(f"%room{number}", "%scratch", "%c", f"%i{number}")

    return [
        *_HEAD,
        f"  %s0 = getelementptr i8, ptr %scratch, i64 {shared}",
        _zero("%scratch", shared),
        "  br label %clear",
        "clear:",
        "  %z = phi i64 [ 0, %entry ], [ %z_next, %clear ]",
        f"  %z_at = mul i64 %z, {each}",
        "  %z_room = getelementptr i8, ptr %s0, i64 %z_at",
        _zero("%z_room", zeroed),
        f"  %z_members = getelementptr i64, ptr %z_room, i64 {MEMBERS_AT}",
        "  store i64 1, ptr %z_members",
        "  %z_next = add i64 %z, 1",
        f"  %z_done = icmp sge i64 %z_next, {examples}",
        "  br i1 %z_done, label %candidates, label %clear",
        "candidates:",
        f"  %c = phi i64 [ %first, %clear ], [ %c_next, %after{len(phases) - 1} ]",
        "  br label %before0",
        *_write_phases(phases, "%rows", own_turn, Turn("%s0", "%scratch", "%c", "0")),
        "  %c_next = add i64 %c, 1",
        "  %c_done = icmp sge i64 %c_next, %last",
        "  br i1 %c_done, label %end, label %candidates",
        "end:",
        "  ret void",
        "}",
    ]


def _write_phases(
    phases: list[tuple[list[Call], list[Call]]],
    turns: str,
    own_turn: Callable[[int], tuple[list[str], Turn]],
    common: Turn,
) -> list[str]:
    """Each phase: stages in turn, for all that take part, and then those that are called once.

    Args:
        phases: The stages of both kinds, phase by phase.
        turns: How many take part.
        own_turn: What turn %i of a phase begins with, and its stages are called with.
        common: What the others are called with.
    """
    lines = []
    for number, (own, once) in enumerate(phases):
        lines += [f"before{number}:", f"  br label %{'phase' if own else 'after'}{number}"]
        if own:
            before, turn = own_turn(number)
            lines += [
                f"phase{number}:",
                f"  %i{number} = phi i64 [ 0, %before{number} ], [ %next{number}, %phase{number} ]",
                *before,
                *_write_calls(own, turn, f"%args{number}", f"%own{number}"),
                *_count_work("0", turn.candidate, f"o{number}", turn.scratch),
                f"  %next{number} = add i64 %i{number}, 1",
                f"  %done{number} = icmp sge i64 %next{number}, {turns}",
                f"  br i1 %done{number}, label %after{number}, label %phase{number}",
            ]
        lines += [f"after{number}:", *_write_calls(once, common, "%args", f"%once{number}")]
        if number < len(phases) - 1:
            lines.append(f"  br label %before{number + 1}")
    return lines


def _write_calls(calls: list[Call], turn: Turn, args: str, name: str) -> list[str]:
    return [line for n, call in enumerate(calls) for line in call.write(turn, args, f"{name}_{n}")]


def _zero(address: str, size: int) -> str:
    return f"  call void @llvm.memset.p0.i64(ptr {address}, i8 0, i64 {size}, i1 false)"


def _count_work(word: str, candidate: str, end: str, scratch: str = "%scratch") -> list[str]:
    """What stages counted in a word of scratch memory goes to a candidate."""
    return [
        f"  %cell{end} = getelementptr i64, ptr {scratch}, i64 {word}",
        f"  %total{end} = getelementptr i64, ptr %work, i64 {candidate}",
        f"  %before{end} = load i64, ptr %total{end}",
        f"  %counted{end} = load i64, ptr %cell{end}",
        f"  store i64 0, ptr %cell{end}",
        f"  %sum{end} = add i64 %before{end}, %counted{end}",
        f"  store i64 %sum{end}, ptr %total{end}",
    ]


def _split(calls: list[Call]) -> list[tuple[list[Call], list[Call]]]:
    """Stages of their own, phase by phase, and the common ones behind each."""
    return list(_each_phase(calls))


def _each_phase(calls: list[Call]) -> Iterator[tuple[list[Call], list[Call]]]:
    own: list[Call] = []
    common: list[Call] = []
    for call in calls:
        if common and not call.is_common:
            yield own, common
            own, common = [], []
        (common if call.is_common else own).append(call)
    yield own, common
