"""What is no formula, and the sentence each gets: file, line, what was seen, the way out."""

import gzip
import lzma
import re

import pytest

from hardstep.errors import DataError
from hardstep.maxsat import random_ksat, read
from hardstep.maxsat.dimacs import dumps, loads

TOO_MUCH = "9" * 20

CLAUSES = {
    "no closing 0": ("p cnf 3 2\n1 2 0\n-1 3\n", "line 3: '3' is the last word, but no 0 closes"),
    "no closing 0, no line end": ("5 1 2 0\nh -1", "line 2: '-1' is the last word, but no 0"),
    "clause cut by the trailer": ("p cnf 3 1\n1 2\n%\n0\n",
        "line 2: '2' is the last word, but no 0"),
    "fewer clauses": ("c\np cnf 3 4\n1 2 0\n-1 3 0\n\n",
        "line 4: the file ends after 2 clauses, but line 2 announces 4; fetch it again"),
    "more clauses": ("p cnf 3 1\n1 2 0\nc\n-1 3 0\n",
        "line 4: '-1' starts clause 2, but line 1 announces 1; correct the header"),
    "0 inside a clause": ("p cnf 3 1\n1 0 3 0\n",
        "line 2: '3' starts clause 2, .* a 0 that is inside a clause, since every 0 closes one"),
    "variable above the header": ("p cnf 3 2\n1 2 0\n-1 -4 0\n",
        "line 3: '-4' is beyond the 3 variables that line 1 announces; correct either"),
    "variable beyond 32 bits": ("h 1 0\nh -1073741825 0",
        "line 2: '-1073741825' is beyond the 1073741824"),
    "variable beyond 64 bits": (f"p cnf 9 1\n-{TOO_MUCH} 0",
        f"line 2: '-{TOO_MUCH}' does not fit 64 bits"),
    "very many digits": (f"p cnf 9 1\n1{'0' * 5000} 0",
        r"line 2: '10{39}\.\.\.' does not fit 64 bits"),
    "not a number": ("p cnf 3 1\n1 x2 0\n",
        "line 2: 'x2' is not a whole number; clauses are whole"),
    "comment behind a clause": ("p cnf 3 1\n1 2 0 c yes\n",
        "line 2: 'c' is not a whole number; .*lines"),
    "sign inside": ("p cnf 3 1\n1-2 0\n", "line 2: '1-2' is not a whole number"),
    "two signs": ("p cnf 3 1\n--1 0\n", "line 2: '--1' is not a whole number"),
    "plus sign": ("p cnf 3 1\n+1 0\n", "line 2: '[+]1' is not a whole number"),
    "a sign alone": ("p cnf 3 1\n1 - 2 0\n", "line 2: '-' is not a whole number"),
    "minus zero": ("p cnf 3 1\n1 -0\n", "line 2: '-0' is no literal; write 0 to close"),
    "vertical tab": ("p cnf 3 1\n1\v2 0\n", r"line 2: '1.2' is not a whole number"),
    "letter in CNF": ("p cnf 3 1\nh 1 0\n",
        "line 2: 'h' is not a whole number; in a file with a 'p'"),
    "after the trailer": ("p cnf 3 1\n1 0\n%\n0\n\n7 0\n",
        "line 6: '7' comes after the '%' that ends"),
    "trailer in WCNF": ("p wcnf 3 1\n4 1 0\n%\n0\n", "line 3: '%' is not a whole number"),
}  # fmt: skip
WEIGHTS = {
    "negative": ("p wcnf 3 1 9\n-5 1 2 0\n",
        "line 2: '-5' starts a clause, so it is its weight, .*from 1"),
    "zero": ("p wcnf 3 2 9\n5 1 2 0\n0 1 2 0\n",
        "line 3: '0' starts a clause, so it is its weight"),
    "zero, no header": ("0 1 2 0\n", "line 1: '0' starts a clause, so it is its weight"),
    "fraction": ("p wcnf 3 1\n0.8 1 2 0\n",
        "line 2: '0.8' is not a whole number; scale all weights"),
    "above 63 bits": (f"h 1 0\n{2**63} 1 0\n",
        f"line 2: '{2**63}' starts a clause, .* to {2**63 - 1}"),
    "above 64 bits": (f"{2**64} 1 0\n", f"line 1: '{2**64}' does not fit 64 bits"),
    "sum": (f"h 1 0\n{2**62} 1 0\n{2**62 - 1} 1 0\n1 1 0\n1 1 0",
        f"line 4: '1' brings the sum of weights above {2**63 - 1}; scale the weights down"),
    "letter inside": ("h 1 2\nh 3 0\n", "line 2: 'h' starts a hard clause, but no 0 closes"),
    "letter and number": ("h1 2 0\n", "line 1: 'h1' is not a whole number"),
    "negated letter": ("-h 2 0\n", "line 1: '-h' is not a whole number"),
    "letter under a header": ("p wcnf 3 1 9\nh 1 0\n",
        "line 2: 'h' is not .* the weight 'top' instead"),
    "CNF without header": ("c\n-1 2 0\n",
        "line 2: '-1' starts a clause.*add the line 'p cnf VARIABLES"),
}  # fmt: skip
HEADERS = {
    "twice": ("p cnf 3 1\n1 0\np cnf 3 1\n",
        "line 3: 'p' starts a second header, after the one in line 1"),
    "late": ("1 1 0\n p cnf 3 1\n", "line 2: 'p' starts a header, but clauses come before it"),
    "short": ("p cnf 3\n1 0\n",
        "line 1: 'p cnf 3' is not a header; it must be 'p cnf VARIABLES CLAUSES'"),
    "long": ("c\nc\np cnf 3 1 9\n1 0\n", "line 3: 'p cnf 3 1 9' is not a header"),
    "too long": ("p wcnf 3 1 9 9\n1 0\n", "line 1: 'p wcnf 3 1 9 9' is not a header"),
    "only p": ("p\n", "line 1: 'p' is not a header"),
    "another format": ("p edge 3 1\n", "line 1: 'p edge 3 1' is not a header"),
    "joined": ("pcnf 3 1\n", "line 1: 'pcnf 3 1' is not a header"),
    "negative variables": ("p cnf -3 1\n",
        "line 1: '-3' stands for variables, which must be whole, from 0"),
    "fraction": ("p cnf 3 1e3\n", "line 1: '1e3' stands for clauses, which must be whole"),
    "too many variables": (f"p cnf {2**31} 1\n",
        f"line 1: '{2**31}' stands for variables, .* to {2**30}"),
    "endless variables": (f"p cnf {'9' * 9999} 1\n", "line 1: '9{40}' stands for variables"),
    "zero top": ("p wcnf 3 1 0\n", "line 1: '0' stands for top, which must be whole, from 1"),
    "overflowing top": (f"p wcnf 3 1 {2**64}\n", f"line 1: '{2**64}' stands for top"),
}  # fmt: skip
FILES = {
    "empty": (b"", "holds no formula, it is empty or only has comments"),
    "comments only": (b"c\nc p cnf 1 1\n  \n",
        "holds no formula, it is empty or only has comments"),
    "NUL bytes": (b"p cnf 1 1\n1 \0 0\n", "has NUL bytes, so it is not a text file"),
    "UTF-16": ("p cnf 1 1\n1 0\n".encode("utf-16"), "has NUL bytes, .*convert UTF-16"),
    "binary": (bytes(range(128, 256)), r"line 1: '\\x80\\x81.*\.\.\.' is not a whole number"),
    "UTF-8 minus": ("p cnf 2 1\n1 −2 0\n".encode(),
        r"line 2: '\\xe2\\x88\\x922' is not a whole number"),
}  # fmt: skip


@pytest.mark.parametrize("table", [CLAUSES, WEIGHTS, HEADERS], ids=["clause", "weight", "header"])
def test_a_fault_is_refused_with_line_and_word(tmp_path, table):
    for kind, (content, sentence) in table.items():
        path = tmp_path / "some.cnf"
        path.write_text(content)
        with pytest.raises(DataError) as caught:
            read(path)
        expected = rf"{re.escape(str(path))}: {sentence}"
        assert re.match(expected, str(caught.value)), f"{kind}: {caught.value}"


@pytest.mark.parametrize("kind", list(FILES))
def test_what_is_no_text_is_refused(kind):
    content, sentence = FILES[kind]
    with pytest.raises(DataError, match=f"^some.cnf: {sentence}"):
        loads(content, "some.cnf")


def test_lines_are_counted_far_into_a_file():
    content = dumps(random_ksat(50_000)).replace("\n", "\r\nc\r\n")
    num_lines = content.count("\n")
    wrong = content.replace("p cnf 50000 213500", "p cnf 50000 213501") + "\n\n1 2 50001 0\n"
    with pytest.raises(DataError, match=f"line {num_lines + 3}: '50001' is beyond the 50000"):
        loads(wrong)


@pytest.mark.parametrize("pack", [gzip.compress, lzma.compress])
def test_a_cut_or_damaged_archive_is_refused(tmp_path, pack):
    path = tmp_path / "a.cnf.gz"
    whole = pack(dumps(random_ksat(200)).encode())
    middle = len(whole) // 2
    for content in (
        whole[:middle],
        whole[:-1],
        whole[:8],
        whole[:middle] + bytes([whole[middle] ^ 0xFF]) + whole[middle + 1 :],
    ):
        path.write_bytes(content)
        with pytest.raises(DataError, match=r"a\.cnf\.gz: the packed file is cut off or damaged"):
            read(path)


def test_places_that_hold_no_file_are_refused(tmp_path):
    with pytest.raises(DataError, match=r"none\.cnf: cannot be opened \(No such file"):
        read(tmp_path / "none.cnf")
    with pytest.raises(DataError, match=r"cannot be opened \(Is a directory\); name a file"):
        read(tmp_path)
    with pytest.raises(DataError, match=r"cannot be opened \(embedded null"):
        read("a\0b")


def test_a_formula_beyond_memory_is_refused(monkeypatch):
    def exhausted(*_):
        raise MemoryError

    monkeypatch.setattr("hardstep.maxsat.dimacs.reader.parse_clauses", exhausted)
    with pytest.raises(DataError, match="some.cnf: the formula does not fit in memory"):
        loads("p cnf 1 1\n1 0\n", "some.cnf")
