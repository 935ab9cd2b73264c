"""A minute of the fuzzer, and what it would notice."""

import json
import os
import subprocess
import sys
from pathlib import Path
from random import Random

import pytest

from tests.fuzz.answers import ACCEPTED, REFUSED, Answer, Fault, check_sentence, judge
from tests.fuzz.catalogue import TARGETS
from tests.fuzz.commands import COMMANDS
from tests.fuzz.damage import CHANGES, damage
from tests.fuzz.feeds import change_samples, draw
from tests.fuzz.findings import Finding, Findings, load
from tests.fuzz.formulas import SAMPLES, Dimacs
from tests.fuzz.target import Case
from tests.fuzz.trees import damage_tree, to_json

ROOT = Path(__file__).parents[2]
INPUTS = 1_000  # some 25 s of one core


def run(*arguments):
    """A module in a process of its own: the fuzzer makes processes, and tests have threads."""
    return subprocess.run(
        [sys.executable, "-m", *map(str, arguments)],
        cwd=ROOT,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=600,
    )


@pytest.fixture(scope="module")
def minute(tmp_path_factory):
    """What the command says, and what it counted."""
    folder = tmp_path_factory.mktemp("minute")
    places = ("--findings", folder / "found", "--record", folder / "counts.json")
    done = run("tests.fuzz", "--inputs", INPUTS, *places)
    return done, json.loads((folder / "counts.json").read_text())


@pytest.mark.slow
def test_a_minute_finds_nothing(minute):
    done, counts = minute
    assert counts["total"]["findings"] == done.returncode == 0, done.stdout


@pytest.mark.slow
def test_a_minute_reads_inputs_of_every_kind(minute):
    done, counts = minute
    assert not done.stderr
    assert set(counts["targets"]) == set(TARGETS)
    assert all(row["inputs"] >= 2 for row in counts["targets"].values())
    assert counts["total"]["inputs"] >= INPUTS


@pytest.fixture(scope="module")
def planted(tmp_path_factory):
    """What the fuzzer says of targets with a fault each, and its folder."""
    folder = tmp_path_factory.mktemp("planted")
    done = run("tests.fuzz.planted", folder)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout), folder


def test_every_planted_fault_is_found(planted):
    found = planted[0]["found"]
    assert found.pop("crashing").startswith("Fatal Python error: Segmentation fault")
    assert found == {
        "raising": "KeyError",
        "hanging": "hang",
        "greedy": "MemoryError",
        "littering": "a file is left behind",
        "printing": "a control character is printed",
    }


def test_inputs_are_counted_by_what_came_of_them(planted):
    counts = planted[0]["counts"]
    assert counts["raising"] == counts["greedy"] == {"findings": 3}
    assert counts["hanging"] == counts["crashing"] == {"findings": 1}  # each ends its process
    assert sum(counts["sound"].values()) == 3
    assert set(counts["sound"]) <= {ACCEPTED, REFUSED}


def test_a_fault_is_kept_once_with_its_smallest_input(planted):
    folders = list((planted[1] / "found").glob("raising-*"))
    assert len(folders) == 1
    name, case = load(folders[0])
    sizes = []
    change_samples("0", 3)(_Sizes(), lambda case: sizes.append(len(case.content)))
    assert (name, len(case.content)) == ("raising", min(sizes))


class _Sizes(Dimacs):
    def vary(self, rng):
        return Case(b"x" * rng.randrange(1, 9))


def test_faults_differ_by_target_kind_and_line(tmp_path):
    findings = Findings(tmp_path)
    one = Finding("suite", "KeyError", "a.py:1 in f", "", Case(b"long"))
    assert findings.add(one)
    assert not findings.add(one._replace(said="other", case=Case(b"x")))
    assert findings.add(one._replace(where="a.py:2 in f"))
    assert findings.add(one._replace(what="TypeError"))
    assert findings.add(one._replace(target="records"))
    assert load(tmp_path / one.key) == ("suite", Case(b"x"))


@pytest.mark.parametrize("feed", [change_samples, draw])
def test_a_seed_gives_the_same_inputs_again(feed):
    def inputs(seed):
        found = []
        feed(seed, 40)(Dimacs(), found.append)
        return found

    assert inputs("a") == inputs("a") != inputs("b")


@pytest.mark.parametrize("change", sorted(set(CHANGES), key=lambda f: f.__name__))
def test_every_change_changes_most_samples_and_takes_an_empty_one(change):
    rng = Random(0)
    changed = [change(SAMPLES[2], rng, SAMPLES) != SAMPLES[2] for _ in range(40)]
    assert sum(changed) > (5 if change.__name__ != "change_text" else -1)  # it has no strings
    assert isinstance(change(b"", rng, [b""]), bytes)
    assert damage(b"", rng, [b""]) is not None


def test_a_changed_tree_is_a_copy():
    tree = {"a": [1, {"b": "text"}], "c": None}
    before = to_json(tree)
    made = {to_json(damage_tree(tree, Random(seed))) for seed in range(200)}
    assert to_json(tree) == before
    assert len(made) > 100


def test_every_command_is_typed():
    assert {("train",), ("evaluate",), ("maxsat",), ("bench", "run")} <= set(COMMANDS)


SENTENCE = "hardstep: there is no file a.cnf; name one\n"


@pytest.mark.parametrize(
    ("answer", "outcome"),
    [
        (Answer(0, "fine\n", "", None), ACCEPTED),
        (Answer(None, "", "", None), ACCEPTED),
        (Answer(2, "", SENTENCE, None), REFUSED),
        (Answer(2, "", f"skipped: a line\n{SENTENCE}", None), REFUSED),
        (Answer(2, "", "Usage: hardstep\n", None), REFUSED),
    ],
)
def test_a_plain_answer_is_accepted_or_refused(answer, outcome):
    assert judge(answer, "") == outcome


@pytest.mark.parametrize(
    ("answer", "fault"),
    [
        (Answer(1, "", SENTENCE, None), "exit code 1"),
        (Answer(130, "", "", None), "exit code 130"),
        (Answer(2, "", "", None), "without a sentence"),
        (Answer(2, "", "hardstep: KeyError: 'a'\n", None), "says KeyError"),
        (Answer(2, "", "hardstep: <class 'int'>\n", None), "says <class"),
        (Answer(2, "", f"hardstep: {5000 * 'x'}\n", None), "long"),
        (Answer(2, "", "hardstep: a\nb\nc\nd\ne\n", None), "long"),
        (Answer(0, "\x1b[31m", "", None), "control character"),
        (Answer(2, "", "hardstep: a\x07\n", None), "control character"),
        (Answer(2, "", "hardstep: \x9b2J\n", None), "control character"),
        (Answer(2, "", "hardstep: \n", None), "empty"),
    ],
)
def test_an_answer_that_is_none_is_a_fault(answer, fault):
    with pytest.raises(Fault, match=fault):
        judge(answer, "")


def test_a_word_of_the_input_may_be_quoted():
    check_sentence("no key is called 'KeyError'", "", "KeyError = 1")
    with pytest.raises(Fault):
        check_sentence("no key is called 'KeyError'", "", "a = 1")
