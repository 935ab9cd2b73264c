"""Files from others: what is beyond a limit is refused with a reason, and nothing waits."""

import json
import os

import pytest

from hardstep._reading import MOST_BYTES, MOST_DEPTH, check_path, parse_json, parse_toml, read_text
from hardstep.bench import load
from hardstep.errors import DataError

DEEP = 50_000


@pytest.mark.parametrize("depth", [MOST_DEPTH + 2, 900, DEEP])
@pytest.mark.parametrize(
    ("parse", "opening", "inside", "closing"),
    [(parse_json, "[", "", "]"), (parse_json, '{"a":', "1", "}"), (parse_toml, "[", "", "]"),
     (parse_toml, "{a=", "1", "}")],
    ids=["list", "object", "array", "table"],
)  # fmt: skip
def test_what_is_nested_too_deep_is_refused(parse, opening, inside, closing, depth):
    start = "x = " if parse is parse_toml else ""
    with pytest.raises(ValueError, match=f"nested more than {MOST_DEPTH} deep"):
        parse(f"{start}{opening * depth}{inside}{closing * depth}")
    parse(f"{start}{opening * 9}{inside}{closing * 9}")


@pytest.mark.parametrize("text", ["{} = 1", "[{}]"], ids=["key", "table"])
def test_a_name_of_many_parts_is_refused_at_once(text):
    with pytest.raises(ValueError, match="nested more than"):
        parse_toml(text.format(".".join("a" * DEEP)))


@pytest.mark.parametrize("digits", [301, 400, 5000])
def test_a_number_that_no_float_holds_is_refused(digits):
    for parse, text in ((parse_json, '{{"x": [-{}]}}'), (parse_toml, "x = [{}]")):
        with pytest.raises(ValueError, match="more than 300 digits"):
            parse(text.format("9" * digits))
        parse(text.format("9" * 300))


def test_what_is_no_json_is_told_apart():
    with pytest.raises(json.JSONDecodeError):
        parse_json('{"a": 1')


def test_a_file_that_may_have_no_end_is_not_opened(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", tmp_path):
        with pytest.raises(DataError, match="is a folder, a pipe or a device; name a file"):
            read_text(path, "suite")
    os.mkfifo(tmp_path / "pipe.jsonl")
    assert load(tmp_path) == ([], [])
    (tmp_path / "long").write_bytes(b" " * (MOST_BYTES + 1))
    with pytest.raises(DataError, match="has more than 1,048,576 bytes"):
        read_text(tmp_path / "long", "suite")


@pytest.mark.parametrize(
    ("text", "reason"),
    [("", "--out is empty; name a file or a folder"), (" ", "--out is empty"),
     ("a" * 5000, "File name too long; name another"), ("a\0b", "embedded null byte; name another"),
     ("/".join(["a" * 100] * 50), "File name too long")],
    ids=["empty", "blank", "long", "NUL", "deep"],
)  # fmt: skip
def test_what_no_file_can_be_called_is_refused(text, reason):
    with pytest.raises(DataError, match=reason):
        check_path(text, "--out")
    assert check_path("new/file", "--out").name == "file"
