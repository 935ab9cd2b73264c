"""The command line itself: what is typed, what is refused, what is loaded and what is printed."""

import dataclasses
import re
import subprocess
import sys
import typing
import urllib.error
import urllib.request
from pathlib import Path

import pytest
import typer

from hardstep import tasks
from hardstep.bench.axes import AXES, budget_of
from hardstep.bench.methods import METHODS
from hardstep.cli.commands import COMMANDS
from hardstep.cli.options import CompareOptions
from hardstep.tasks.policies import STEMS
from tests.cli.program import hardstep
from tests.tasks.test_dry_run import OWN as OWN_TASK

OWN = str(Path(__file__).parents[2] / "examples" / "own_task.py")
SUITE = '[[run]]\ntasks = ["mlp"]\nmethods = ["mezo"]\nseeds = [0]\nmatch = "steps"\nbudget = 1\n'
NO_FILES = "cannot be written: /proc takes no files (No such file or directory); name another with"
# What help texts begin with.
VERBS = """Append Average Check Compare Continue Derive Draw Examine Fix Give Improve Make Name
    Print Read Run Satisfy Say Score Search Set Start Stop Take Train Tune Use Write"""
TYPED = {str: ["text"], int: ["7"], float: ["2.5"], Path: ["file"], bool: []}


@pytest.mark.parametrize("command", COMMANDS)
def test_every_field_is_typed_as_the_help_says_in_a_sentence(monkeypatch, command):
    kind, target = COMMANDS[command]
    text, typed, meant, given = hardstep(*command.split(), "--help").stdout, [], {}, []
    assert kind.__doc__.split()[0] in VERBS.split()
    assert " ".join(kind.__doc__.split()[:4]) in text
    for field in dataclasses.fields(kind):
        whole, info = typing.get_args(field.type)
        of = next(of for of in (typing.get_args(whole) or (whole,)) if of in TYPED)
        assert info.help.split()[0] in VERBS.split()
        assert re.fullmatch(r"[A-Z].{8,}\.", info.help)
        assert of is not bool or not info.metavar.strip()  # it takes no value, so none is shown
        words, meant[field.name] = TYPED[of], of(*TYPED[of]) if TYPED[of] else True
        if not isinstance(info, typer.models.ArgumentInfo):
            name = "option" if field.name == "options" else field.name.replace("_", "-")
            words = [f"--{name}", *words]
            assert words[0] in text
        if typing.get_origin(whole) is list:
            words, meant[field.name] = [*words, *words], [meant[field.name]] * 2
        typed += words
    monkeypatch.setattr(f"hardstep.cli.{target.replace(':', '.')}", lambda o: given.append(o) or 3)
    done = hardstep(*command.split(), *typed)
    assert (done.returncode, done.stderr, given) == (3, "", [kind(**meant)])


def test_what_is_left_out_is_the_default(monkeypatch):
    given = []
    monkeypatch.setattr("hardstep.cli.compare.run_compare", lambda o: given.append(o) or 0)
    assert hardstep("compare", "snn", "--match", "time").returncode == 0
    assert given == [CompareOptions("snn", match="time")]


def test_help_names_every_task_data_set_and_usual_budget():
    text = " ".join(hardstep("compare", "--help").stdout.replace("│", " ").split())
    names = {*tasks.BY_DATA, *tasks.BY_DATA["digits"], *tasks.BY_DATA["mnist"], *STEMS}
    assert all(re.search(rf"\b{name}\b", text) for name in names)
    usual = [budget_of(tasks.find("mlp"), axis, None).amount for axis in list(AXES)[1:]]
    assert "{:,.0f} evaluations, {:.0f} seconds or {:,.0f} interactions".format(*usual) in text


def test_help_and_the_page_on_comparing_name_every_method():
    (methods,) = (f for f in dataclasses.fields(CompareOptions) if f.name == "methods")
    listed = typing.get_args(methods.type)[1].help.partition(": ")[2].partition(".")[0]
    assert listed.split(", ") == list(METHODS)
    page = (Path(__file__).parents[2] / "docs/how-to/compare.md").read_text()
    assert not [name for name in METHODS if f"`{name}`" not in page]


def test_help_and_import_do_not_load_torch():
    code = (
        "import sys, hardstep, hardstep.cli.commands as m\n"
        "for command in ('', *m.COMMANDS):\n"
        "    try: m.app([*command.split(), '--help'])\n"
        "    except SystemExit: pass\n"
        "assert 'torch' not in sys.modules, 'torch was loaded'\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("Usage:") == 1 + len(COMMANDS)


REFUSED = {
    "train nonsense": "no task is called 'nonsense'; there is acrobot, argmax, bcnn, binary,",
    "train binry": "no task is called 'binry'; did you mean 'binary'?",
    "train mlp --data nonsense": "no data set is called 'nonsense'; there is digits",
    "train snn --data fashion": "snn comes with data digits or mnist, got 'fashion'; on fashion",
    "train none.py:task": "there is no file none.py in",
    f"train {OWN} --data mnist": f"{OWN}:ferns brings its own data ('own'), so data 'mnist' cannot",
    f"train {OWN}:fern": f"no task of {OWN} is called 'fern'; did you mean 'ferns'?",
    "train mlp --resume": "no run to resume",
    "train mlp --out /proc/x": f"/proc/x {NO_FILES} --out\n",
    "train mlp --out suite.toml": "suite.toml is a file; name a folder with --out\n",
    "train mlp --out /dev/null/x": "/dev/null/x would lie in /dev/null, a file; name another with",
    "evaluate none.pt": "no checkpoint at none.pt",
    "compare mlp --methods mezo,mezo": "--methods has mezo 2 times",
    "compare mlp --match interactions": "mlp plays no environment, so its runs cannot be matched",
    "compare mlp --records /proc/x": f"/proc/x {NO_FILES} --records\n",
    "compare mlp --records .": ". is a folder; name a file in it with --records\n",
    "compare mlp --picture .": ". is a folder; name a file in it with --picture\n",
    "compare mlp --records suite.toml/r": "suite.toml/r would lie in /",
    "compare mlp --picture suite.toml/c.png": "suite.toml/c.png would lie in /",
    "compare mlp --picture c.pgn": "c.pgn does not end as a picture does; name another with --pict",
    "tune mlp --records /proc/x": f"/proc/x {NO_FILES} --records\n",
    "maxsat": "maxsat needs a file or --random N, and not both\n",
    "maxsat suite.toml --random 10": "maxsat needs a file or --random N, and not both\n",
    "maxsat --random 10 --seconds 1 --steps 1": "maxsat takes --seconds or --steps, not both\n",
    "maxsat --random 10 --seconds -1": "--seconds must be above 0, got -1",
    "maxsat missing.cnf": "missing.cnf",
    "maxsat --random 2": "random_ksat: needs 1 <= k <= num_variables",
    "maxsat --random 10 --ratio -1": "random_ksat: ratio",
    "diagnose mlp --picture /proc/n/x.png": f"/proc/n/x.png {NO_FILES} --picture\n",
    "diagnose mlp --picture c.pgn": "c.pgn does not end as a picture does; name another with --pic",
    "theory --json .": ". is a folder; name a file in it with --json\n",
    "theory --html /proc/x.html": f"/proc/x.html {NO_FILES} --html\n",
    "report suite.toml --out r": "r ends neither as a page nor as Markdown does; name another with",
    "report suite.toml -o r.html.gz": "r.html.gz ends neither as a page nor as Markdown does; name",
    "bench run suite.toml --records /proc/x": f"/proc/x {NO_FILES} --records\n",
    "bench run suite.toml --records r.jsonl.gz": "r.jsonl.gz is packed, so nothing is appended",
    "compare mlp --records r.jsonl.gz": "r.jsonl.gz is packed, so nothing is appended to it; name",
    "tune mlp --records r.jsonl.gz": "r.jsonl.gz is packed, so nothing is appended to it; name r.",
    "bench table .": "there is no file *.jsonl in .; name one with records",
    "bench table nosuch.jsonl": "there is no file nosuch.jsonl; `hardstep bench",
}


@pytest.mark.usefixtures("closed")
@pytest.mark.parametrize("typed", REFUSED)
def test_bad_input_is_one_sentence_and_exit_code_2_before_anything_runs(tmp_path, typed):
    (tmp_path / "suite.toml").write_text(SUITE)
    done = hardstep(*typed.split(), cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"hardstep: {REFUSED[typed]}")
    assert done.stderr.count("\n") == 1
    assert [path.name for path in tmp_path.iterdir()] == ["suite.toml"]


@pytest.mark.usefixtures("closed")
@pytest.mark.parametrize("typed", ["train mlp --out new/x", "compare mlp --records new/x"])
def test_a_place_in_a_folder_that_cannot_be_written_to_is_refused(tmp_path, monkeypatch, typed):
    monkeypatch.setattr("os.access", lambda *_: False)  # the superuser may write anywhere
    done, option = hardstep(*typed.split(), cwd=tmp_path), typed.split()[2]
    sentence = f"new/x cannot be written: {tmp_path} is read-only; name another with {option}"
    assert (done.returncode, done.stderr) == (2, f"hardstep: {sentence}\n")


@pytest.mark.usefixtures("closed")
def test_what_cannot_be_parsed_is_named_with_exit_code_2():
    unclear = {"train mlp --steps 0": "--steps", "train": "Missing argument", "x": "No such comm"}
    unclear |= {f"{command} mlp --seeds 10001": "--seeds" for command in ("compare", "tune")}
    for typed, sentence in unclear.items():
        done = hardstep(*typed.split())
        assert (done.returncode, done.stdout) == (2, "")
        assert sentence in done.stderr


@pytest.mark.parametrize("folder", ["nothing", None])
def test_missing_data_is_one_sentence_with_the_way_out(tmp_path, monkeypatch, folder):
    def unreachable(url, timeout):
        raise urllib.error.URLError("no network")

    monkeypatch.setattr(urllib.request, "urlopen", unreachable)
    if folder is None:
        monkeypatch.delenv("HARDSTEP_DATA", raising=False)
        monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
        monkeypatch.setenv("HOME", str(tmp_path / "home"))
    else:
        monkeypatch.setenv("HARDSTEP_DATA", str(tmp_path / folder))
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    done = hardstep("train", "snn", "--data", "mnist", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    (sentence,) = done.stderr.splitlines()
    assert sentence.startswith("hardstep: mnist: looked for train-images-idx3-ubyte.gz")
    assert ("HARDSTEP_DATA is not set" in sentence) == (folder is None)
    assert "fetch them from https://ossci-datasets.s3.amazonaws.com/mnist (" in sentence
    assert sentence.endswith("put the files in a folder mnist/ and set HARDSTEP_DATA to its parent")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_no_warning_reaches_a_user(tmp_path):
    (tmp_path / "suite.toml").write_text(SUITE)
    histogram = "torch.histc(output, 3, -1, 1)"  # torch warns of it past Python's filters
    loss = f"lambda output, target: nn.functional.cross_entropy(output + {histogram}, target)"
    (tmp_path / "odd.py").write_text(OWN_TASK.replace("steps=2", f"steps=2, loss_fn={loss}"))
    lines = [
        "train snn --steps 1 --out run --coverage",
        "evaluate run",
        "compare mlp --match steps --budget 1 --seeds 1 --records runs.jsonl --methods "
        + ",".join(METHODS),
        "tune mlp --method mezo --match steps --budget 1 --records runs.jsonl",
        "maxsat --random 20 --steps 2 --polish",
        "diagnose mlp --picture flat.png",
        "theory --only A1 --html theory.html",
        "compare odd.py --methods polystep,eggroll,mezo --match steps --budget 1 --seeds 1",
        "bench run suite.toml --processes 2",
        "bench table suite.jsonl --reference mezo",
        "report runs.jsonl",
    ]
    code = f"import hardstep.cli.commands as m\nfor line in {lines}:\n"
    code += "    assert m.app(line.split(), standalone_mode=False) == 0, line\n"
    command = [sys.executable, "-W", "error", "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "warning" not in done.stderr.lower()
