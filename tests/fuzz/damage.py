"""Changes of bytes, as failing disks, editors and attackers make them."""

import re
from collections.abc import Callable, Sequence
from random import Random

NUMBERS = tuple(
    text.encode()
    for text in (
        *("0", "-1", "1", "16777217", "1000000000", "2147483648", "-2147483649", "4294967296"),
        *("9223372036854775807", "9223372036854775808"),
        *("1" + 400 * "0", "-1" + 400 * "0", "nan", "inf", "-inf", "1e308", "-1e308", "1e400"),
        *("1e-320", "0.5", "0x10", "1_0", "true", "null", ""),
    )
)
TEXTS = (
    "",
    "\0",
    "\x1b[31mred\x1b[0m\x07",
    "\x9b2J\r\b",
    "\ud800",
    "\udcff",
    "\u202eright to left",
    "[bold red]markup[/bold red][/]",
    "../../../../outside",
    "/dev/null/below",
    "{0} %s ${HOME} `id`",
    "two\nlines",
    "é" * 60,
    "x" * 5_000,
    "<script>alert(1)</script>",
    "__class__",
)
_NUMBER = re.compile(rb"-?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?")
_TEXT = re.compile(rb'"[^"\n]*"')
_DEEP = 50_000  # brackets; Python gives up after some thousand

Damage = Callable[[bytes, Random, Sequence[bytes]], bytes]


def damage(content: bytes, rng: Random, others: Sequence[bytes]) -> bytes:
    """The content with one change, seldom a few."""
    for _ in range(rng.choice((1, 1, 1, 1, 2, 4))):
        content = rng.choice(CHANGES)(content, rng, others)
    return content


def damage_binary(content: bytes, rng: Random, others: Sequence[bytes]) -> bytes:
    """The same, for files in which there is no text to replace."""
    for _ in range(rng.choice((1, 1, 1, 1, 2, 4))):
        content = rng.choice(OF_BYTES)(content, rng, others)
    return content


def flip_bit(content: bytes, rng: Random, others: Sequence[bytes]) -> bytes:
    if not content:
        return b"\1"
    place = rng.randrange(len(content))
    return content[:place] + bytes([content[place] ^ 1 << rng.randrange(8)]) + content[place + 1 :]


def set_byte(content: bytes, rng: Random, others: Sequence[bytes]) -> bytes:
    place = rng.randrange(len(content) + 1)
    return content[:place] + rng.choice((b"\0", b"\xff", rng.randbytes(1))) + content[place + 1 :]


def truncate(content: bytes, rng: Random, others: Sequence[bytes]) -> bytes:
    return content[: rng.randrange(len(content) + 1)]


def insert(content: bytes, rng: Random, others: Sequence[bytes]) -> bytes:
    place = rng.randrange(len(content) + 1)
    return content[:place] + rng.randbytes(rng.choice((1, 2, 8, 100))) + content[place:]


def delete(content: bytes, rng: Random, others: Sequence[bytes]) -> bytes:
    first, last = _slice(content, rng)
    return content[:first] + content[last:]


def duplicate(content: bytes, rng: Random, others: Sequence[bytes]) -> bytes:
    first, last = _slice(content, rng)
    return content[:last] + content[first:]


def zero(content: bytes, rng: Random, others: Sequence[bytes]) -> bytes:
    first, last = _slice(content, rng)
    return content[:first] + bytes(last - first) + content[last:]


def splice(content: bytes, rng: Random, others: Sequence[bytes]) -> bytes:
    other = rng.choice(others)
    return content[: rng.randrange(len(content) + 1)] + other[rng.randrange(len(other) + 1) :]


def change_number(content: bytes, rng: Random, others: Sequence[bytes]) -> bytes:
    return _replace(_NUMBER, content, rng, rng.choice(NUMBERS))


def change_text(content: bytes, rng: Random, others: Sequence[bytes]) -> bytes:
    """A quoted string, replaced as it is or escaped as in JSON."""
    raw = rng.choice(TEXTS)
    escaped = "".join(c if " " <= c <= "~" and c not in '"\\' else f"\\u{ord(c):04x}" for c in raw)
    chosen = rng.choice((raw, escaped))
    return _replace(_TEXT, content, rng, b'"' + chosen.encode("utf-8", "surrogatepass") + b'"')


def nest(content: bytes, rng: Random, others: Sequence[bytes]) -> bytes:
    """Brackets inside brackets, in the place of a value."""
    opening, closing = rng.choice(((b"[", b"]"), (b'{"a":', b"}"), (b"{a=", b"}")))
    middle = rng.choice((b"", b"1"))
    deep = rng.choice((100, 2_000, _DEEP))
    deep = opening * deep + middle + rng.choice((b"", closing * deep))
    return _replace(rng.choice((_NUMBER, _TEXT)), content, rng, deep)


OF_BYTES: tuple[Damage, ...] = (
    *(flip_bit, flip_bit, set_byte, truncate, insert, delete, duplicate, zero, splice),
)
CHANGES: tuple[Damage, ...] = (
    *OF_BYTES,
    *(change_number, change_number, change_number, change_text, change_text, nest),
)


def _slice(content: bytes, rng: Random) -> tuple[int, int]:
    first = rng.randrange(len(content) + 1)
    return first, min(len(content), first + rng.choice((1, 2, 4, 16, 256, 4096)))


def _replace(wanted: re.Pattern[bytes], content: bytes, rng: Random, by: bytes) -> bytes:
    """One of the places, if there is any."""
    places = [match.span() for match in wanted.finditer(content)]
    if not places:
        return content
    first, last = rng.choice(places)
    return content[:first] + by + content[last:]
