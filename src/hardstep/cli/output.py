"""What commands print: the one way to the terminal, safe for text from any file."""

import builtins
import io
from typing import TextIO

from hardstep._text import printable


def print(
    *values: object, end: str = "\n", file: TextIO | None = None, flush: bool = False
) -> None:
    """Python's own, with control characters written out."""
    builtins.print(printable(" ".join(map(str, values))), end=end, file=file, flush=flush)


def allow_any_character(stream: TextIO) -> None:
    """Let a terminal or a pipe that does not know a character get its code instead."""
    if isinstance(stream, io.TextIOWrapper):
        stream.reconfigure(errors="backslashreplace")
