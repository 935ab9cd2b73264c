"""The text of a file, plain or packed: passages of whole lines without comments, and their words.

Words become whole numbers a megabyte at a time and without a loop over bytes. A number ends at a
blank, so its last eight digits are the eight bytes before that: one 64-bit word, in which pairs,
then fours, then eights of digits are joined by three multiplications.
"""

import gzip
import lzma
import re
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from io import BufferedReader
from typing import IO, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from hardstep.errors import DataError

BLANK = b" \t\r\n"
# Bytes read at once.
BLOCK_BYTES = 1 << 20
_COMMENT = re.compile(rb"\n[ \t\r]*c[^\n]*")
_WORD = re.compile(rb"[^ \t\r\n]+")
_LONGEST_SHOWN = 40
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
MAX_NUMBER = 2**64 - 1
_LEGAL = b"-0123456789" + BLANK
_NUMBER = re.compile(rb"-?[0-9]+")
_MINUS, _LETTER_H, _SPACE = b"-h "
# Room for three words of eight digits before the end of the first number.
_PADDING = b" " * 24


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


def read_passages(stream: BufferedReader, name: str) -> Iterator[Passage]:
    """Everything in the stream, unpacked, a few thousand lines at a time.

    Comments are cut out; line ends stay, so that lines can be counted.

    Raises:
        DataError: The stream cannot be read or unpacked, or holds bytes no text has.
    """
    pending, line = bytearray(), 1
    for block in _read_blocks(stream, name):
        whole = block.rfind(b"\n") + 1
        pending += block[:whole]
        if whole:
            yield Passage(name, line, _cut_comments(pending))
            line += pending.count(b"\n")
            pending.clear()
        pending += block[whole:]
    yield Passage(name, line, _cut_comments(pending))


def _cut_comments(text: bytearray) -> bytes:
    if b"c" not in text:
        return bytes(text)
    # A pattern that starts with the line end is searched faster than one anchored at lines.
    return _COMMENT.sub(b"\n", b"\n" + text)[1:]


def _read_blocks(stream: BufferedReader, name: str) -> Iterator[bytes]:
    """The stream's bytes, unpacked and known to be free of NUL."""
    start = True
    try:
        unpacked = _unpack(stream)
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


def _unpack(stream: BufferedReader) -> IO[bytes]:
    """The stream, through gzip or xz if its first bytes say so; the name may say anything."""
    magic = stream.peek(6)[:6]
    if magic.startswith(b"\x1f\x8b"):
        return cast(IO[bytes], gzip.GzipFile(fileobj=stream))
    if magic == b"\xfd7zXZ\0":
        return cast(IO[bytes], lzma.LZMAFile(stream))
    return stream


class Tokens(NamedTuple):
    """The words of a passage, in order. A letter h has magnitude 1, so 0 only stands for 0."""

    offsets: NDArray[np.int64]
    ends: NDArray[np.int64]
    magnitudes: NDArray[np.uint64]
    negative: NDArray[np.bool_]
    letters: NDArray[np.bool_] | None  # None where no h is allowed


def tokenize(passage: Passage, *, letters: bool) -> Tokens:
    """Every word of the passage, each a whole number or, if allowed, the letter h.

    Raises:
        DataError: A word is something else, or a number does not fit 64 bits.
    """
    text = passage.text
    legal = not text.translate(None, _LEGAL + b"h" if letters else _LEGAL)
    buffer = np.frombuffer(_PADDING + text + b" ", dtype=np.uint8)
    inside = buffer > _SPACE
    edges = np.flatnonzero(inside[1:] != inside[:-1])
    edges += 1
    starts, ends = edges[0::2], edges[1::2]
    first = buffer[starts]
    negative = first == _MINUS
    digits = ends - starts
    digits -= negative
    is_letter = (first == _LETTER_H) & (digits == 1) if letters else None
    # With only legal bytes, a word is well formed unless it lacks digits, or has a sign or a
    # letter in the wrong place, which then is in no count of words.
    legal = legal and bool(digits.all()) and text.count(b"-") == np.count_nonzero(negative)
    legal = legal and (is_letter is None or text.count(b"h") == np.count_nonzero(is_letter))
    magnitudes = _magnitudes(buffer, ends, digits) if legal else None
    if magnitudes is not None and is_letter is not None:
        magnitudes[is_letter] = 1
    if magnitudes is None or (negative & (magnitudes == 0)).any():
        raise _first_fault(passage, letters=letters)
    return Tokens(starts - len(_PADDING), ends - len(_PADDING), magnitudes, negative, is_letter)


def _first_fault(passage: Passage, *, letters: bool) -> DataError:
    """The error about the first word that is not as it should be."""
    for word in _WORD.finditer(passage.text):
        if letters and word.group() == b"h":
            continue
        if not _NUMBER.fullmatch(word.group()):
            return passage.refusal(word.start(), f"is not a whole number; {_hint(word.group())}")
        if not word.group().strip(b"-0") and word.group().startswith(b"-"):
            return passage.refusal(word.start(), "is no literal; write 0 to close a clause")
        if len(word.group().lstrip(b"-")) > 20 or abs(int(word.group())) > MAX_NUMBER:
            return passage.refusal(
                word.start(),
                f"does not fit 64 bits; numbers have at most 20 digits and end at {MAX_NUMBER}",
            )
    raise AssertionError("a word was refused that has no fault")


def _hint(word: bytes) -> str:
    if word == b"h":
        return "in a file with a 'p' line, hard clauses have the weight 'top' instead"
    if b"." in word:
        return "scale all weights until they are whole"
    return "clauses are whole numbers closed by 0, and comments whole lines from 'c' on"


def _magnitudes(
    buffer: NDArray[np.uint8], ends: NDArray[np.int64], digits: NDArray[np.int64]
) -> NDArray[np.uint64] | None:
    """The values of the digits before each end, or None if one exceeds MAX_NUMBER."""
    values = _eight_digits(buffer, ends, np.minimum(digits, 8))
    long = np.flatnonzero(digits > 8)
    if long.size == 0:
        return values
    middle = _eight_digits(buffer, ends[long] - 8, np.minimum(digits[long] - 8, 8))
    values[long] += middle * np.uint64(10**8)
    long = long[digits[long] > 16]
    upper = _eight_digits(buffer, ends[long] - 16, np.minimum(digits[long] - 16, 8))
    most, rest = divmod(MAX_NUMBER, 10**16)
    over = (upper > most) | ((upper == most) & (values[long] > rest)) | (digits[long] > 20)
    values[long] += upper * np.uint64(10**16)
    return None if over.any() else values


def _eight_digits(
    buffer: NDArray[np.uint8], ends: NDArray[np.int64], digits: NDArray[np.int64]
) -> NDArray[np.uint64]:
    """The values of up to eight digits before each end."""
    windows: NDArray[np.uint64] = np.ndarray(
        (buffer.size - 7,), dtype="<u8", buffer=buffer.data, strides=(1,)
    )
    word = windows[ends - 8].astype(np.uint64, copy=False)
    word &= np.uint64(0x0F0F0F0F0F0F0F0F)
    # Bytes before the number are the low ones; shifted out, they count as leading zeros.
    foreign = (64 - 8 * digits).astype(np.uint64)
    word >>= foreign
    word <<= foreign
    for factor, shift, mask in (
        (10, 8, 0x00FF00FF00FF00FF),
        (100, 16, 0x0000FFFF0000FFFF),
        (10000, 32, 0x00000000FFFFFFFF),
    ):
        upper = word >> np.uint64(shift)
        word *= np.uint64(factor)
        word += upper
        word &= np.uint64(mask)
    return word
