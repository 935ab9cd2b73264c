import gzip
import lzma
from contextlib import contextmanager
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hardstep.errors import DataError
from hardstep.maxsat import Formula, random_ksat, read, write
from hardstep.maxsat.dimacs import dumps, loads, reader, text
from tests.maxsat.naive import EXAMPLES, Plain, as_lists, formula_of, normal, parse, plains

BLANKS = [" ", "  ", "\t", "\n", "\r\n", " \n\n\t", "\nc 1 2 0 p cnf h %\n", "\r\n  c\r\nc x\r\n"]


@contextmanager
def pieces(num_bytes):
    with (
        patch.object(reader, "PIECE_BYTES", num_bytes),
        patch.object(text, "BLOCK_BYTES", num_bytes),
    ):
        yield


@st.composite
def files(draw):
    """Valid files of all three formats, with odd blanks and comments between any two words."""
    kind = draw(st.sampled_from(["cnf", "wcnf", "top", "headerless"]))
    plain = draw(plains(unit=kind == "cnf"))
    top = sum(weight or 0 for weight in plain.weights) + 1
    words = []
    for clause, weight in zip(plain.clauses, plain.weights, strict=True):
        hard = {"top": str(top + draw(st.integers(0, 3))), "headerless": "h"}.get(kind, "3")
        words += [] if kind == "cnf" else [hard if weight is None else str(weight)]
        words += [*map(str, clause), "0"]
    gaps = draw(st.lists(st.sampled_from(BLANKS), min_size=len(words), max_size=len(words)))
    body = "".join(word + gap for word, gap in zip(words, gaps, strict=True))
    header = f"p {'cnf' if kind == 'cnf' else 'wcnf'}  {plain.num_variables}\t{len(plain.clauses)}"
    header += {"top": f" {top} ", "headerless": ""}.get(kind, "")
    start = "" if kind == "headerless" else f"{header}\n"
    end = (
        draw(st.sampled_from(["", "%\n0\n\n", "%\r\n"]))
        if kind == "cnf" and body[-1:] == "\n"
        else ""
    )
    filled = start + body.rstrip(" \t") + end
    return draw(st.sampled_from(["", "c hello\n", "\n \nc\n"])) + (filled if filled else "h 0\n")


@EXAMPLES
@given(files(), st.integers(1, 40))
def test_any_valid_file_reads_as_the_plain_parser_reads_it(content, num_bytes):
    expected = normal(parse(content))
    assert as_lists(loads(content)) == expected
    with pieces(num_bytes):
        assert as_lists(loads(content)) == expected


@EXAMPLES
@given(plains())
def test_a_formula_survives_writing_and_reading(plain):
    formula = formula_of(plain)
    again = loads(dumps(formula))
    assert as_lists(again) == as_lists(formula)
    assert again.num_tautologies == 0


@EXAMPLES
@given(plains())
def test_without_a_header_the_last_variable_is_the_last_that_occurs(plain):
    formula = formula_of(plain)
    content = dumps(formula, header=False)
    if formula.num_clauses == 0:
        assert content == ""
        return
    last = max((abs(x) for clause in as_lists(formula).clauses for x in clause), default=0)
    assert as_lists(loads(content)) == as_lists(formula)._replace(num_variables=last)


@pytest.mark.parametrize("name", ["a.cnf", "a.cnf.gz", "a.wcnf.xz"])
def test_files_are_packed_as_their_name_says_and_unpacked_as_their_bytes_say(tmp_path, name):
    formula = random_ksat(300, seed=1)
    write(formula, tmp_path / name)
    magic = {"f": b"p cnf 300 1281\n", "z": b"\x1f\x8b", "xz": b"\xfd7zXZ\0"}
    expected = magic["xz" if name.endswith("xz") else name[-1]]
    assert (tmp_path / name).read_bytes().startswith(expected)
    (tmp_path / name).rename(tmp_path / "renamed.txt")
    np.testing.assert_array_equal(read(tmp_path / "renamed.txt").literals, formula.literals)
    np.testing.assert_array_equal(read(str(tmp_path / "renamed.txt")).starts, formula.starts)


def test_the_written_text_is_as_the_formats_have_it():
    soft = Formula.from_lists([[1, -2], [], [3]])
    assert dumps(soft) == "p cnf 3 3\n1 -2 0\n0\n3 0\n"
    partial = Formula.from_lists([[1, -2], [], [3]], 4, [5, 1, 7], [False, True, False])
    assert dumps(partial) == "p wcnf 4 3 13\n5 1 -2 0\n13 0\n7 3 0\n"
    assert dumps(partial, header=False) == "5 1 -2 0\nh 0\n7 3 0\n"
    assert dumps(Formula.from_lists([], 2)) == "p cnf 2 0\n"


def test_many_clauses_of_mixed_length_survive_several_pieces():
    rng = np.random.default_rng(0)
    lengths = rng.integers(0, 12, 30_000)
    signed = rng.integers(1, 10**6, lengths.sum()) * rng.choice([-1, 1], lengths.sum())
    starts = np.concatenate([[0], np.cumsum(lengths)])
    literals = 2 * (np.abs(signed) - 1) + (signed < 0)
    weights = rng.integers(1, 2**46, lengths.size)
    formula = Formula(10**6, starts, literals, weights, rng.random(lengths.size) < 0.3)
    again = loads(dumps(formula))
    for name in ("starts", "literals", "weights", "hard"):
        np.testing.assert_array_equal(getattr(again, name), getattr(formula, name))


def test_weights_of_every_number_of_digits_are_exact():
    numbers = [10**k + d for k in range(19) for d in (-1, 0, 1) if 10**k + d > 0]
    for number in numbers:
        assert loads(f"{number} 1 0").weights.tolist() == [number]


def test_the_largest_numbers_of_the_formats_are_read():
    largest = 2**63 - 1
    assert loads(f"{largest} 1 0\nh -1 0").weights.tolist() == [largest, 0]
    formula = loads(f"p wcnf 2 2 {2**64 - 1}\n{2**64 - 1} 1 0\n{largest} -2 0\n")
    assert formula.hard.tolist() == [True, False]
    assert loads(f"1 {2**30} -{2**30 - 1} 0").literals.tolist() == [2**31 - 2, 2**31 - 3]
    assert loads(f"p cnf {2**30} 0\n").num_variables == 2**30


def test_weights_from_top_on_are_hard_and_without_top_all_are_soft():
    body = "9 1 0 10 2 0 11 -1 0"
    assert loads(f"p wcnf 2 3 10\n{body}").hard.tolist() == [False, True, True]
    assert loads(f"p wcnf 2 3\n{body}").hard is None
    assert loads(f"p wcnf 2 3\n{body}").weights.tolist() == [9, 10, 11]


@pytest.mark.parametrize(
    "content", ["p cnf 0 0", "p cnf 0 0\n%\n0\n", "p wcnf 0 0 1\n", "c\np wcnf 0 0\n"]
)
def test_a_formula_without_clauses_is_read(content):
    assert as_lists(loads(content)) == Plain(0, [], [])


def test_an_empty_clause_is_read_as_one():
    assert as_lists(loads("p cnf 2 3\n1 0 0 2 0")) == Plain(2, [[1], [], [2]], [1, 1, 1])
    assert as_lists(loads("h 0 5 0")) == Plain(0, [[], []], [None, 5])


def test_bytes_strings_and_a_byte_order_mark_make_no_difference():
    expected = Plain(2, [[1, -2]], [1])
    for content in ("p cnf 2 1\n1 -2 0", b"p cnf 2 1\n1 -2 0", b"\xef\xbb\xbfp cnf 2 1\n1 -2 0\n"):
        assert as_lists(loads(content)) == expected
    assert as_lists(loads(gzip.compress(b"p cnf 2 1\n1 -2 0"))) == expected
    assert as_lists(loads("c naïve \ud800\np cnf 2 1\n1 -2 0")) == expected
    assert as_lists(loads("c latin: é\np cnf 2 1\n1 -2 0".encode("latin-1"))) == expected


def test_one_clause_over_very_many_pieces_is_read_once():
    clause = list(range(1, 30_000))
    content = "p cnf 30000 1\n" + "\n".join(map(str, clause)) + " 0\n"
    with pieces(64):
        assert as_lists(loads(content)).clauses == [clause]


def test_a_file_that_cannot_be_written_is_named(tmp_path):
    with pytest.raises(DataError, match=r"none.a\.cnf: cannot be written \(No such file"):
        write(random_ksat(5), tmp_path / "none" / "a.cnf")


EDITS = st.lists(
    st.tuples(
        st.integers(0, 400),
        st.integers(0, 12),
        st.one_of(
            st.binary(max_size=6),
            st.sampled_from(
                [b"0", b"-", b"h", b"%", b"p", b"c", b"\n", b" 0 ", b"\np cnf 3 1\n", b"h h", b"-0"]
                + [b"9" * 19, b"9" * 20, b"0" * 21 + b"1", b"\x0b", b"1e3", b"--1", b"+1", b"1.5"]
            ),
        ),
    ),
    max_size=4,
)


def only_refused(content):
    """Read the bytes; anything but a formula or one sentence about the file escapes."""
    said = ""
    try:
        formula = loads(content, "some.cnf")
    except DataError as error:
        said = str(error)
    if said:
        assert said.startswith("some.cnf: ")
        assert "\n" not in said
    else:
        assert formula.occurrences.size == formula.literals.size
        formula.cost(np.zeros(formula.num_variables, dtype=bool))


def edited(content, edits):
    for start, length, new in edits:
        start = start % (len(content) + 1)
        content = content[:start] + new + content[start + length :]
    return content


@settings(EXAMPLES, max_examples=100)
@given(files(), EDITS, st.integers(1, 40))
def test_a_damaged_file_is_read_or_refused_in_one_sentence(content, edits, num_bytes):
    damaged = edited(content.encode(), edits)
    with pieces(num_bytes):
        only_refused(damaged)
    only_refused(damaged)


@EXAMPLES
@given(st.sampled_from([gzip.compress, lzma.compress]), files(), EDITS)
def test_a_damaged_archive_is_read_or_refused_in_one_sentence(pack, content, edits):
    only_refused(edited(pack(content.encode()), edits))


@EXAMPLES
@given(st.binary(max_size=200))
def test_arbitrary_bytes_are_read_or_refused_in_one_sentence(content):
    only_refused(content)
