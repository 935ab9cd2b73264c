"""Text from outside is shown without commanding the terminal."""

import pytest

from hardstep._text import LONGEST_SENTENCE, printable, to_line, to_sentence

UNSAFE = [
    "\x1b[31m",
    "\x07",
    "\r",
    "\x00",
    "\x7f",
    "\x9b31m",
    "\u202e",
    "\u2066",
    "\u2028",
    "\ud800",
]


@pytest.mark.parametrize("text", UNSAFE, ids=ascii)
def test_what_commands_a_terminal_is_written_out(text):
    shown = printable(f"a{text}b")
    assert shown.isprintable()
    assert shown == f"a{ascii(text)[1:-1]}b"


def test_all_else_stays_as_it_is():
    text = "accuracy 96.1 % ± 0.2 – größer, 日本, 👩\u200d🔬\n\t[red]x[/red] \\x1b"
    assert printable(text) == text


def test_a_line_is_one_line_and_a_sentence_is_short():
    assert to_line("a\r\n  b\nc\u2028d") == r"a b c\u2028d"
    assert to_sentence("no task 'x'; there is mlp") == "no task 'x'; there is mlp"
    word, many = to_sentence(f"no task {'x' * 5000}; there is mlp"), to_sentence("0, " * 5000)
    assert word.startswith("no task xxx")
    assert word.endswith("x; there is mlp")
    assert len(word) < 400
    assert len(many) < LONGEST_SENTENCE + 10
