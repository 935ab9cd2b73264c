r"""Text from outside, made fit to be shown: no control characters, no endless words.

printable("\x1b[31mred")           '\\x1b[31mred'
to_sentence("a\nb " + 900 * "x")    'a b xxxxxx … xxxxxx'
"""

import re

LONGEST_WORD = 300  # of a sentence; a longer one is shown by its two ends
LONGEST_SENTENCE = 1200

# Control characters but tab and line end; marks that turn the direction of text around them, or
# end a line for some programs; halves of characters, which no file can hold.
_UNSAFE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)
_LONG_WORD = re.compile(rf"\S{{{LONGEST_WORD + 1},}}")


def printable(text: str) -> str:
    """The text with what would command a terminal written as Python writes it in a string."""
    return _UNSAFE.sub(lambda found: ascii(found.group())[1:-1], text)


def to_line(text: str) -> str:
    """The same on one line."""
    return printable(re.sub(r"\s*[\r\n]\s*", " ", text))


def to_caption(text: str) -> str:
    """The same for a picture, where matplotlib takes what stands between dollars for a formula."""
    return to_line(text).replace("$", r"\$")


def to_sentence(text: str) -> str:
    """The same, as short as one can read: what is long is shown by its two ends."""
    words = _LONG_WORD.sub(lambda found: _shorten(found.group(), LONGEST_WORD), to_line(text))
    return _shorten(words, LONGEST_SENTENCE)


def _shorten(text: str, most: int) -> str:
    half = most // 2
    return text if len(text) <= most else f"{text[:half]} … {text[-half:]}"
