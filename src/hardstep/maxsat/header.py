"""The 'p' line, which says what a file holds and how much of it.

p cnf  variables clauses          every clause is soft and weighs 1
p wcnf variables clauses [top]    clauses start with a weight; from `top` on they are hard
no such line                      clauses start with a weight, or with h if they are hard
"""

from dataclasses import dataclass

from hardstep.maxsat.checks import MAX_CLAUSES, MAX_VARIABLES
from hardstep.maxsat.text import BLANK, Passage, refusal
from hardstep.maxsat.tokens import MAX_NUMBER

_FORMS = "'p cnf VARIABLES CLAUSES' or 'p wcnf VARIABLES CLAUSES [TOP]'"


@dataclass(frozen=True, slots=True)
class Header:
    """What the 'p' line announces; all None for the dialect that has none."""

    line: int | None = None
    num_variables: int | None = None
    num_clauses: int | None = None
    top: int | None = None
    weighted: bool = True


def split_header(passage: Passage) -> tuple[Header, Passage]:
    """The header at the start of the passage, which is not blank, and what comes after it.

    Raises:
        DataError: The first line starts with p, but is not a header.
    """
    start = len(passage.text) - len(passage.text.lstrip(BLANK))
    if passage.text[start : start + 1] != b"p":
        return Header(), passage
    end = passage.text.find(b"\n", start)
    end = len(passage.text) if end < 0 else end
    return _parse(passage, start, end), passage.from_offset(end)


def _parse(passage: Passage, start: int, end: int) -> Header:
    line = passage.line_at(start)
    words = passage.text[start:end].split()
    kind, numbers = b" ".join(words[:2]), words[2:]
    if kind not in (b"p cnf", b"p wcnf") or len(numbers) not in (2, 2 + (kind == b"p wcnf")):
        shown = passage.text[start:end].strip()[:60].decode("ascii", "backslashreplace")
        raise refusal(passage.name, line, f"'{shown}' is not a header; it must be {_FORMS}")
    return Header(
        line,
        _number(passage.name, line, "variables", numbers[0], 0, MAX_VARIABLES),
        _number(passage.name, line, "clauses", numbers[1], 0, MAX_CLAUSES),
        _number(passage.name, line, "top", numbers[2], 1, MAX_NUMBER) if numbers[2:] else None,
        weighted=kind == b"p wcnf",
    )


def _number(name: str, line: int, field: str, word: bytes, low: int, high: int) -> int:
    # Python refuses to convert thousands of digits, and none of these needs more than 20.
    value = int(word) if word.isdigit() and len(word) <= 20 else -1
    if not low <= value <= high:
        shown = word[:40].decode("ascii", "backslashreplace")
        raise refusal(
            name, line, f"'{shown}' stands for {field}, which must be whole, from {low} to {high}"
        )
    return value
