"""Target: command lines."""

import os
from pathlib import Path
from random import Random
from typing import Any

import typer
from hypothesis import strategies as st

from hardstep.cli.commands import app
from tests.fuzz.answers import ACCEPTED, ask, close, judge
from tests.fuzz.damage import NUMBERS, TEXTS
from tests.fuzz.formulas import SAMPLES
from tests.fuzz.record_files import COMPARE
from tests.fuzz.target import Case, Target, remove

SUITE = """[[run]]
tasks = ["mlp"]
methods = ["random", "mezo"]
seeds = [0]
match = "steps"
budget = 2
"""
CLOSED = (
    *("train.fit", "compare.run_job", "tune.carry_out", "maxsat.Search", "diagnose.diagnose"),
    *("theory.judge", "bench.carry_out"),
)
FILES = (
    "formula.cnf",
    "records.jsonl",
    "suite.toml",
    "empty",
    "folder",
    "missing",
    "missing/below.html",
    "page.html",
    "p.md",
)
NAMES = (
    *("snn", "mlp", "mnist", "int8", "argmax", "digits", "polystep", "openai-es", "adam", "random"),
    *("polystep,random", "mezo,", ",", "steps", "evals", "time", "A1", "A1,C", "a", "own.py:x"),
    *("polystep.preset=sketch", "openai-es.sigma=0", "openai-es.sigma=nan", "random.x=1", "=", "."),
    *("polystep.rank=1e9", "/", ".", "..", "-", "--", "/proc/nothing/x", "picture.png", "x.jsonl"),
)

WORKING = (
    "train mlp --data digits --seed 1 --steps 3 --out new --coverage --json",
    "compare mlp --methods polystep,random --match evals --budget 2000 --seeds 2 --no-picture",
    "compare mlp --methods random,mezo --option mezo.epsilon=0.1 --records new.jsonl --json",
    "tune mlp --method random --match steps --budget 3 --seeds 1 --first-seed 9 --records x.jsonl",
    "maxsat formula.cnf --steps 1 --seed 3 --target 2 --polish",
    "maxsat --random 20 --ratio 4.2 --seconds 1 --json",
    "diagnose mlp --seed 0 --temperature 0.1 --step-radius 1 --probe-radius 2 --picture p.png",
    "theory --only A1 --seed 1 --json outcomes.json --html outcomes.html",
    "report records.jsonl --out page.html --reference random",
    "bench run suite.toml --records new.jsonl --processes 2 --tasks mlp --methods random",
    "bench table records.jsonl --reference random",
)


def _list_commands(command: Any, words: tuple[str, ...] = ()) -> dict[tuple[str, ...], Any]:
    """Every command below this one, by what is typed."""
    found = {words: command}
    for name, inner in getattr(command, "commands", {}).items():
        found |= _list_commands(inner, (*words, name))
    return found


COMMANDS = _list_commands(typer.main.get_command(app))
OPTIONS = {
    words: [option for parameter in command.params for option in parameter.opts]
    for words, command in COMMANDS.items()
}
EVERY = sorted({option for options in OPTIONS.values() for option in options if option[0] == "-"})
VALUES = (*(number.decode() for number in NUMBERS), *TEXTS, *FILES, *NAMES)


def _choose(words: tuple[str, ...], rng: Random) -> list[str]:
    """Arguments for a command: mostly its own options, mostly with a value."""
    arguments = list(words)
    for _ in range(rng.choice((0, 1, 1, 2, 3, 6))):
        own = [option for option in OPTIONS[words] if option[0] == "-"]
        if rng.random() < 0.7:
            arguments.append(rng.choice(own if own and rng.random() < 0.9 else EVERY))
        arguments.append(rng.choice(VALUES))
    if rng.random() < 0.7:
        arguments.insert(len(words), rng.choice((*NAMES, *FILES)))
    return arguments


def _change(arguments: list[str], rng: Random) -> list[str]:
    """A command line that works, with one word changed, added or dropped."""
    place = rng.randrange(1, len(arguments))
    kind = rng.choice(("value", "value", "value", "option", "drop", "repeat"))
    if kind == "value":
        arguments[place] = rng.choice(VALUES)
    elif kind == "option":
        arguments[len(arguments) :] = [rng.choice(EVERY), rng.choice(VALUES)]
    elif kind == "drop":
        del arguments[place]
    else:
        arguments[place:place] = arguments[place : place + 2]
    return arguments


def _join(arguments: list[str]) -> bytes:
    """As the system hands them over: bytes, none of them zero."""
    clean = (argument.replace("\0", "") for argument in arguments)
    return b"".join(word.encode("utf-8", "surrogatepass") + b"\0" for word in clean)


class CommandLine(Target):
    """A command line, up to where its work begins."""

    name, share = "command", 3.0
    strategy = st.tuples(
        st.sampled_from(sorted(COMMANDS)),
        st.lists(
            st.sampled_from(EVERY) | st.sampled_from(VALUES) | st.text(max_size=8), max_size=6
        ),
    ).map(lambda parts: _join([*parts[0], *parts[1]]))

    def prepare(self) -> None:
        """Files to name."""
        Path("formula.cnf").write_bytes(SAMPLES[0])
        Path("suite.toml").write_text(SUITE)
        answer = ask(*COMPARE.split(), "--records", "records.jsonl")
        assert answer.code == 0, answer.err
        Path("empty").touch()
        Path("folder").mkdir()

    def open(self) -> None:
        """No work begins."""
        close(*CLOSED)

    def vary(self, rng: Random) -> Case:
        """Arguments as somebody might type them."""
        if rng.random() < 0.7:
            return Case(_join(_change(rng.choice(WORKING).split(), rng)))
        return Case(_join(_choose(rng.choice(sorted(COMMANDS)), rng)))

    def read(self, case: Case) -> str:
        """Call it; what a command that was accepted wrote is expected."""
        words = [os.fsdecode(word) for word in case.content.split(b"\0")[:-1]]
        kept = set(os.listdir())
        outcome = judge(ask(*words), " ".join(words))
        for name in set(os.listdir()) - kept if outcome == ACCEPTED else ():
            remove(Path(name))
        return outcome
