"""Files and arguments made to do harm: one sentence and exit code 2, or shown without effect."""

import dataclasses
import json
import os
import pty
import re
import typing
from pathlib import Path

import pytest

from hardstep.cli.commands import COMMANDS
from tests.bench.test_records import run
from tests.cli.program import hardstep
from tests.cli.test_main import SUITE
from tests.tasks.test_dry_run import OWN

EVIL = "\x1b[31m\x9b\u202e\ud800[red]x[/red]\r\nnext"
RAW = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e\ud800-\udfff]")


def list_path_options():
    """Every place for a path on the command line: the command, and the option's name."""
    for command, (options, _) in COMMANDS.items():
        for field in dataclasses.fields(options):
            kind, info = typing.get_args(field.type)
            if Path in (kind, *typing.get_args(kind)):
                is_option = type(info).__name__ == "OptionInfo"
                yield command, f"--{field.name}" if is_option else field.name


def type_path(command, option, path):
    given = {"train": ["mlp"], "compare": ["mlp"], "tune": ["mlp"], "diagnose": ["mlp"]}
    needed = {"report": ["r.jsonl"], "bench run": ["s.toml"]} if option.startswith("-") else {}
    words = [option, path] if option.startswith("-") else [path]
    return [*command.split(), *given.get(command, needed.get(command, [])), *words]


@pytest.mark.usefixtures("closed")
@pytest.mark.parametrize(("command", "option"), [*list_path_options()])
def test_no_command_takes_a_path_that_no_file_can_have(command, option, tmp_path):
    for path, reason in (("a" * 5000, "File name too long; name another\n"), ("", "is empty")):
        done = hardstep(*type_path(command, option, path), cwd=tmp_path)
        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr.startswith(f"hardstep: {option} ")
        assert reason in done.stderr
        assert done.stderr.count("\n") == 1
        assert len(done.stderr) < 500
    assert not any(tmp_path.iterdir())


@pytest.mark.usefixtures("closed")
@pytest.mark.parametrize(
    "typed",
    ["compare mlp --methods mezo --records", "tune mlp --records", "bench run s.toml --records",
     "theory --only A1 --json", "theory --only A1 --html"],
)  # fmt: skip
def test_a_pipe_or_a_device_is_not_written_to_nor_replaced(tmp_path, typed):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "s.toml").write_text(SUITE)
    for path in ("pipe", "/dev/hardstep-has-no-business-here"):
        done = hardstep(*typed.split(), path, cwd=tmp_path)
        option = typed.split()[-1]
        sentence = f"{path} is no file but a device or a pipe; name a file with {option}"
        assert (done.returncode, done.stderr) == (2, f"hardstep: {sentence}\n")
    assert (tmp_path / "pipe").is_fifo()


BODIES = {
    "class E(BaseException): pass\nraise E('gone')": "E: gone",
    "raise GeneratorExit": "GeneratorExit",
    "class E(Exception):\n    def __str__(self): raise ValueError\nraise E": "E",
    "import sys; sys.exit(3)": "SystemExit: 3",
    "import os; os.remove(__file__); raise ValueError('x')": "ValueError: x",
    "raise BaseExceptionGroup('all', [KeyboardInterrupt()])": "BaseExceptionGroup: all",
    "raise ValueError('\\x1b[31m\\ud800')": r"ValueError: \x1b[31m\ud800",
    "x = 1\0": "ValueError: source code string cannot contain null bytes",
}


@pytest.mark.parametrize("body", BODIES)
@pytest.mark.parametrize("typed", ["train t.py:own", "bench run s.toml"])
def test_whatever_a_task_file_raises_is_one_sentence(tmp_path, typed, body):
    (tmp_path / "t.py").write_text(body)
    (tmp_path / "s.toml").write_text(SUITE.replace("mlp", "t.py:own"))
    done = hardstep(*typed.split(), cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    reason = BODIES[body].replace("ValueError: source", "(ValueError|SyntaxError): source")
    pattern = reason if "|" in reason else re.escape(reason)
    assert re.match(rf"hardstep: t\.py cannot be loaded: {pattern}", done.stderr)
    assert done.stderr.count("\n") == 1


def test_a_task_file_that_is_none_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "t.py")
    for name in ("t.py", "a" * 5000 + ".py", "a\0.py"):
        done = hardstep("train", f"{name}:own", cwd=tmp_path)
        assert done.returncode == 2
        assert done.stderr.startswith("hardstep: there is no file ")
        assert done.stderr.count("\n") == 1


def test_a_task_file_that_interrupts_is_an_interrupt(tmp_path):
    (tmp_path / "t.py").write_text("raise KeyboardInterrupt")
    done = hardstep("train", "t.py:own", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (130, "hardstep: interrupted\n")


def test_a_task_that_takes_itself_away_or_answers_for_others_trains(tmp_path):
    odd = "\nclass Odd:\n    @property\n    def __class__(self): raise SystemExit\nodd = Odd()\n"
    itself = "\nimport os, sys\nos.remove(__file__)\ndel sys.modules[__name__]\n"
    (tmp_path / "t.py").write_text(OWN + odd + itself)
    done = hardstep("train", "t.py", "--steps", 1, "--out", "run", cwd=tmp_path)
    assert done.returncode == 0, done.stderr


def write_records(path, **changes):
    runs = [run(seed, method=name) for name in ("polystep", "mezo") for seed in (0, 1)]
    text = "".join(json.dumps({"schema": 1, **one, **changes}) + "\n" for one in runs)
    path.write_text(text)


@pytest.mark.parametrize("typed", ["bench table", "report -o p.html", "report -o p.md"])
@pytest.mark.parametrize("name", ["task", "data", "command", "machine", "metric", "options"])
def test_names_in_records_reach_neither_terminal_nor_page_raw(tmp_path, typed, name):
    evil = {"metric": {"name": EVIL}, "options": {EVIL: EVIL}}.get(name, EVIL)
    write_records(tmp_path / "r.jsonl", **{name: evil})
    done = hardstep(*typed.split(), "r.jsonl", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    page = tmp_path / typed.split()[-1]
    shown = done.stdout + (page.read_text() if page.suffix == ".md" else "")
    assert not RAW.search(shown)
    assert not re.search("^next", shown, re.MULTILINE)
    if name in ("task", "data"):
        assert page.suffix == ".html" or "[red]x[/red]" in shown


@pytest.mark.parametrize("typed", ["bench table", "report -o p.html", "report -o p.md"])
@pytest.mark.parametrize(
    "changes",
    [{"test": 1e308}, {"test": -(10**200)}, {"valid": 10**290}, {"seconds": 1e308},
     {"peak_memory_bytes": 1e308}, {"budget": {"axis": "steps", "amount": 1e308}},
     {"budget": {"axis": ["steps"], "amount": 1}}, {"seed": 10**400}, {"note": 10**5000},
     {"curve": run()["curve"] | {"steps": [0, 10**200]}, "steps": 10**201}],
    ids=lambda changes: next(iter(changes)),
)  # fmt: skip
def test_numbers_that_nothing_can_compute_with_are_skipped(tmp_path, typed, changes):
    write_records(tmp_path / "r.jsonl")
    (text,) = (
        [json.dumps({"schema": 1, **run(7), **changes})]
        if "note" not in changes
        else [json.dumps({"schema": 1, **run(7)})[:-1] + f', "note": {"9" * 5000}}}']
    )
    with (tmp_path / "r.jsonl").open("a") as stream:
        stream.write(text + "\n")
    done = hardstep(*typed.split(), "r.jsonl", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stderr.startswith("skipped: r.jsonl, line 5: ")
    assert done.stderr.endswith("\n1 lines skipped; nothing was rewritten\n")
    assert len(done.stderr) < 1500


@pytest.mark.parametrize(
    ("text", "reason"),
    [("x = " + "[" * 50_000, "nested more than 64 deep"),
     (".".join("a" * 50_000) + " = 1", "nested more than 64 deep"),
     (SUITE.replace("budget = 1", f"budget = 1{'0' * 400}"), "more than 300 digits"),
     (SUITE.replace("mezo", "random") + f"options.mlp.random.population = 1{'0' * 20}", "2^63"),
     (SUITE.replace("mlp", r"\u001b[31m"), r"no task is called '\x1b[31m'"),
     (SUITE.replace("mlp", "m" * 5000), "no task is called 'mmm")],
    ids=["brackets", "dots", "digits", "count", "escape", "long"],
)  # fmt: skip
def test_a_hostile_suite_is_one_sentence(tmp_path, text, reason):
    options = [line for line in text.splitlines() if line.startswith("options")]
    body = "\n".join([*options, *(line for line in text.splitlines() if line not in options)])
    (tmp_path / "s.toml").write_text(body)
    done = hardstep("bench", "run", "s.toml", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert reason in done.stderr
    assert done.stderr.count("\n") == 1
    assert len(done.stderr) < 1500


@pytest.mark.usefixtures("closed")
@pytest.mark.parametrize("typed", ["train mlp --seed", "maxsat --random 9 --seconds"])
@pytest.mark.parametrize("number", ["1" + "0" * 30, "-1" + "0" * 30])
def test_a_number_that_no_counter_holds_is_refused(typed, number):
    done, option = hardstep(*typed.split(), number), typed.split()[-1]
    assert done.returncode == 2
    assert done.stderr.startswith(f"hardstep: {option} must be a number between -2^63 and 2^63")


def test_what_was_typed_is_quoted_without_effect():
    for typed in (["train", "mlp", f"--{EVIL}"], [f"--{EVIL}"], ["bench", EVIL]):
        done = hardstep(*typed)
        assert done.returncode == 2
        assert r"\x1b" in done.stderr
        assert not RAW.search(done.stderr)


def test_every_command_prints_through_the_one_safe_way():
    import hardstep.cli

    for path in Path(hardstep.cli.__file__).parent.glob("*.py"):
        text = path.read_text()
        if path.name not in ("main.py", "commands.py", "output.py") and "print(" in text:
            assert "from hardstep.cli.output import print\n" in text, path.name


def test_a_terminal_gets_no_markup_and_no_control_characters_from_names():
    from hardstep.training import LiveLine

    ours, theirs = pty.openpty()
    with os.fdopen(theirs, "w") as terminal:
        line = LiveLine(terminal)
        line.say(EVIL)
        line.start(1)
        line.show(1, 1, EVIL)
        line.close()
    shown = os.read(ours, 100_000).decode()
    os.close(ours)
    assert "[red]x[/red]" in shown
    assert r"\x1b[31m\x9b\u202e\ud800" in shown
    assert "\x9b" not in shown
    assert "\u202e" not in shown


@pytest.mark.parametrize("title", [EVIL, r"from $\frac to $x^"], ids=["control", "formula"])
def test_a_title_is_drawn_whatever_is_in_it(tmp_path, title):
    pytest.importorskip("matplotlib")
    from hardstep.bench.pictures import draw_curves

    draw_curves(tmp_path / "c.png", title, [run(metric={"name": title})])
    assert (tmp_path / "c.png").stat().st_size > 1000
    (tmp_path / "t.py").write_text(OWN.replace('Task("own", "own"', f'Task("own", {title!r}'))
    done = hardstep("train", "t.py", "--steps", 1, "--out", "run", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert not RAW.search(done.stdout + done.stderr)
    assert (tmp_path / "run" / "picture.png").exists()
