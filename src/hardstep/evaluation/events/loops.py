"""The loops of a kernel over candidates and examples, which call its stages.

Without statistics over the batch, candidates are the inner loop: what they read of an example then
stays in the cache. With them, a candidate takes all examples through one phase after the other, and
every example keeps its changed values in scratch memory of its own.
"""

from collections.abc import Iterator
from typing import NamedTuple

_HEAD = (
    "define void @run(ptr %tables, i64 %first, i64 %last, i64 %rows, i64 %stride, "
    "ptr %scratch) #0 {",
    "entry:",
    "  %args = load ptr, ptr %tables",
    "  %second = getelementptr ptr, ptr %tables, i64 1",
    "  %work = load ptr, ptr %second",
)


class Call(NamedTuple):
    """A stage, where its arguments start."""

    place: str
    function: str
    word: int
    waits: bool

    def write(self, scratch: str, shared: str, example: str) -> str:
        """The call for a candidate `%c`."""
        memory = f"ptr {scratch}, ptr {shared}"
        return f"  call void @{self.function}(ptr %a{self.word}, {memory}, i64 %c, i64 {example})"


def _zero(address: str, size: int) -> str:
    return f"  call void @llvm.memset.p0.i64(ptr {address}, i8 0, i64 {size}, i1 false)"


def _count_work(scratch: str, end: str) -> list[str]:
    """What stages counted in scratch memory goes to their candidate."""
    return [
        f"  %before{end} = load i64, ptr %work_at",
        f"  %own{end} = load i64, ptr {scratch}",
        f"  store i64 0, ptr {scratch}",
        f"  %done{end} = add i64 %before{end}, %own{end}",
        f"  store i64 %done{end}, ptr %work_at",
    ]


def write_loops(calls: list[Call], zeroed: int) -> list[str]:
    """Examples, and for each of them candidates."""
    return [
        *_HEAD,
        *(call.place for call in calls),
        _zero("%scratch", zeroed),
        "  br label %examples",
        "examples:",
        "  %b = phi i64 [ 0, %entry ], [ %b_next, %example_end ]",
        "  br label %candidates",
        "candidates:",
        "  %c = phi i64 [ %first, %examples ], [ %c_next, %candidates ]",
        "  %work_at = getelementptr i64, ptr %work, i64 %c",
        *(call.write("%scratch", "null", "%b") for call in calls),
        *_count_work("%scratch", ""),
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
    phases = list(_split(calls))
    lines = [
        *_HEAD,
        *(call.place for call in calls),
        f"  %s0 = getelementptr i8, ptr %scratch, i64 {shared}",
        _zero("%scratch", shared),
        "  br label %clear",
        "clear:",
        "  %z = phi i64 [ 0, %entry ], [ %z_next, %clear ]",
        f"  %z_at = mul i64 %z, {each}",
        "  %z_room = getelementptr i8, ptr %s0, i64 %z_at",
        _zero("%z_room", zeroed),
        "  %z_next = add i64 %z, 1",
        f"  %z_done = icmp sge i64 %z_next, {examples}",
        "  br i1 %z_done, label %candidates, label %clear",
        "candidates:",
        f"  %c = phi i64 [ %first, %clear ], [ %c_next, %after{len(phases) - 1} ]",
        "  %work_at = getelementptr i64, ptr %work, i64 %c",
        "  br label %phase0",
    ]
    for number, (own, waiting) in enumerate(phases):
        before = f"after{number - 1}" if number else "candidates"
        room = f"%room{number}"
        lines += [
            f"phase{number}:",
            f"  %b{number} = phi i64 [ 0, %{before} ], [ %next{number}, %phase{number} ]",
            f"  %at{number} = mul i64 %b{number}, {each}",
            f"  {room} = getelementptr i8, ptr %s0, i64 %at{number}",
            *(call.write(room, "%scratch", f"%b{number}") for call in own),
            *_count_work(room, str(number)),
            f"  %next{number} = add i64 %b{number}, 1",
            f"  %done_{number} = icmp sge i64 %next{number}, %rows",
            f"  br i1 %done_{number}, label %after{number}, label %phase{number}",
            f"after{number}:",
            *(call.write("%s0", "%scratch", "0") for call in waiting),
        ]
        if number < len(phases) - 1:
            lines.append(f"  br label %phase{number + 1}")
    return [
        *lines,
        "  %c_next = add i64 %c, 1",
        "  %c_done = icmp sge i64 %c_next, %last",
        "  br i1 %c_done, label %end, label %candidates",
        "end:",
        "  ret void",
        "}",
    ]


def _split(calls: list[Call]) -> Iterator[tuple[list[Call], list[Call]]]:
    """Stages of single examples, and those that wait for all of them."""
    own: list[Call] = []
    waiting: list[Call] = []
    for call in calls:
        if waiting and not call.waits:
            yield own, waiting
            own, waiting = [], []
        (waiting if call.waits else own).append(call)
    yield own, waiting
