"""Whole numbers out of text, a megabyte at a time and without a loop over bytes.

A number ends at a blank, so its last eight digits are the eight bytes before that: one 64-bit
word, in which pairs, then fours, then eights of digits are joined by three multiplications.
"""

import re
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hardstep.errors import DataError
from hardstep.maxsat.text import BLANK, Passage

MAX_NUMBER = 2**64 - 1
_LEGAL = b"-0123456789" + BLANK
_WORD = re.compile(rb"[^ \t\r\n]+")
_NUMBER = re.compile(rb"-?[0-9]+")
_MINUS, _LETTER_H, _SPACE = b"-h "
# Room for three words of eight digits before the end of the first number.
_PADDING = b" " * 24


class Tokens(NamedTuple):
    """The words of a passage, in order. A letter h has magnitude 1, so 0 only stands for 0."""

    offsets: NDArray[np.int64]
    ends: NDArray[np.int64]
    magnitudes: NDArray[np.uint64]
    negative: NDArray[np.bool_]
    letters: NDArray[np.bool_] | None  # None where no h is allowed


def tokenise(passage: Passage, *, letters: bool) -> Tokens:
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
