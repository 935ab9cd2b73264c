"""The text of an instance, plain or packed, in passages of whole lines without comments."""

import gzip
import lzma
import re
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from io import BufferedReader
from typing import IO, cast

from hardstep.errors import DataError

BLANK = b" \t\r\n"
# Bytes read at once.
BLOCK_BYTES = 1 << 20
_COMMENT = re.compile(rb"\n[ \t\r]*c[^\n]*")
_WORD = re.compile(rb"[^ \t\r\n]*")
_LONGEST_SHOWN = 40
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


@dataclass(frozen=True, slots=True)
class Passage:
    """Part of a file: where it is from, the number of its first line, its bytes."""

    name: str
    line: int
    text: bytes

    def from_offset(self, offset: int) -> "Passage":
        """The rest, from this byte on."""
        return Passage(self.name, self.line_at(offset), self.text[offset:])

    def line_at(self, offset: int) -> int:
        """The number of the line this byte is in."""
        return self.line + self.text.count(b"\n", 0, offset)

    def refusal(self, offset: int, fault: str) -> DataError:
        """An error about the word at this byte, quoted before the fault."""
        word = cast(re.Match[bytes], _WORD.match(self.text, offset)).group()
        shown = word[:_LONGEST_SHOWN].decode("ascii", "backslashreplace")
        shown += "..." if len(word) > _LONGEST_SHOWN else ""
        return refusal(self.name, self.line_at(offset), f"'{shown}' {fault}")


def refusal(name: str, line: int, fault: str) -> DataError:
    """An error about one line of a file."""
    return DataError(f"{name}: line {line}: {fault}")


def passages(stream: BufferedReader, name: str) -> Iterator[Passage]:
    """Everything in the stream, unpacked, a few thousand lines at a time.

    Comments are cut out; line ends stay, so that lines can be counted.

    Raises:
        DataError: The stream cannot be read or unpacked, or holds bytes no text has.
    """
    pending, line = bytearray(), 1
    for block in _blocks(stream, name):
        whole = block.rfind(b"\n") + 1
        pending += block[:whole]
        if whole:
            yield Passage(name, line, _without_comments(pending))
            line += pending.count(b"\n")
            pending.clear()
        pending += block[whole:]
    yield Passage(name, line, _without_comments(pending))


def _without_comments(text: bytearray) -> bytes:
    if b"c" not in text:
        return bytes(text)
    # A pattern that starts with the line end is searched faster than one anchored at lines.
    return _COMMENT.sub(b"\n", b"\n" + text)[1:]


def _blocks(stream: BufferedReader, name: str) -> Iterator[bytes]:
    """The stream's bytes, unpacked and known to be free of NUL."""
    start = True
    try:
        unpacked = _unpacked(stream)
        while block := unpacked.read(BLOCK_BYTES):
            if b"\0" in block:
                raise DataError(
                    f"{name}: has NUL bytes, so it is not a text file; DIMACS is plain ASCII, "
                    "alone or inside gzip or xz (convert UTF-16, unpack other archives first)"
                )
            yield block.removeprefix(_BYTE_ORDER_MARK) if start else block
            start = False
    except (EOFError, zlib.error, lzma.LZMAError, gzip.BadGzipFile) as error:
        raise DataError(
            f"{name}: the packed file is cut off or damaged ({error}); fetch it again"
        ) from error
    except OSError as error:
        raise DataError(f"{name}: cannot be read ({error.strerror or error})") from error


def _unpacked(stream: BufferedReader) -> IO[bytes]:
    """The stream, through gzip or xz if its first bytes say so; the name may say anything."""
    magic = stream.peek(6)[:6]
    if magic.startswith(b"\x1f\x8b"):
        return cast(IO[bytes], gzip.GzipFile(fileobj=stream))
    if magic == b"\xfd7zXZ\0":
        return cast(IO[bytes], lzma.LZMAFile(stream))
    return stream
