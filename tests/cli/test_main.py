"""The command line itself: what is typed, what is refused, what is loaded and what is printed."""

import dataclasses
import json
import re
import subprocess
import sys
import typing
import urllib.error
import urllib.request
from pathlib import Path

import pytest
import typer

import hardstep as package
from hardstep import tasks
from hardstep.bench.axes import budget_of
from hardstep.cli import options
from hardstep.cli.main import COMMANDS
from tests.cli.program import HARDSTEP, hardstep

OWN = str(Path(__file__).parents[2] / "examples" / "own_task.py")
SUITE = '[[run]]\ntasks = ["mlp"]\nmethods = ["mezo"]\nseeds = [0]\nmatch = "steps"\nbudget = 1\n'
NO_FILES = "cannot be written: /proc takes no files (No such file or directory); name another with"
FILE = Path("f")


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("train snn", options.TrainOptions("snn")),
        (
            "train snn --data mnist --seed 4 --steps 5 --out f --resume --coverage --json",
            options.TrainOptions("snn", "mnist", 4, 5, FILE, True, True, True),
        ),
        ("evaluate f --json", options.EvaluateOptions(FILE, True)),
        ("compare snn", options.CompareOptions("snn")),
        (
            "compare snn --data mnist --methods mezo,spsa --match time --budget 2.5 --seeds 2 "
            "--option mezo.mu=1 --option spsa.a=2 --records f --picture f --no-picture --json",
            options.CompareOptions("snn", "mnist", "mezo,spsa", "time", 2.5, 2,
                                   ["mezo.mu=1", "spsa.a=2"], FILE, FILE, True, True),
        ),
        (
            "tune snn --method mezo --data mnist --match time --budget 2.5 --seeds 2 "
            "--first-seed 7 --records f --json --option mezo.mu=1",
            options.TuneOptions("snn", "mezo", "mnist", "time", 2.5, 2, 7, FILE, True,
                                ["mezo.mu=1"]),
        ),
        (
            "maxsat f --random 9 --ratio 4 --seconds 0.5 --steps 3 --target 0 --seed 2 --polish "
            "--json",
            options.MaxsatOptions(FILE, 9, 4.0, 0.5, 3, 0, 2, True, True),
        ),
        (
            "diagnose snn --data mnist --seed 1 --temperature 2 --step-radius 3 --probe-radius 4 "
            "--checkpoint f --picture f --json",
            options.DiagnoseOptions("snn", "mnist", 1, 2.0, 3.0, 4.0, FILE, FILE, True),
        ),
        (
            "theory --full --only A --trained --seed 1 --json f --html f",
            options.TheoryOptions(True, "A", True, 1, FILE, FILE),
        ),
        (
            "report f f -o f --reference mezo",
            options.ReportOptions([FILE, FILE], FILE, "mezo"),
        ),
        (
            "bench run f --records f --processes 2 --tasks snn --methods mezo --match time",
            options.SuiteOptions(FILE, FILE, 2, "snn", "mezo", "time"),
        ),
        ("bench table f --reference mezo", options.TableOptions(FILE, "mezo")),
    ],
)  # fmt: skip
def test_what_is_typed_is_what_the_command_gets(monkeypatch, typed, meant):
    given = []
    _, target = next(pair for name, pair in COMMANDS.items() if typed.startswith(name))
    monkeypatch.setattr(f"hardstep.cli.{target.replace(':', '.')}", lambda o: given.append(o) or 3)
    done = hardstep(*typed.split())
    assert (done.returncode, done.stderr) == (3, "")
    assert given == [meant]


@pytest.mark.parametrize("command", COMMANDS)
def test_every_option_is_explained_in_a_sentence(command):
    kind, _ = COMMANDS[command]
    text = hardstep(*command.split(), "--help").stdout
    assert " ".join(kind.__doc__.split()[:4]) in text
    for field in dataclasses.fields(kind):
        (info,) = typing.get_args(field.type)[1:]
        assert re.fullmatch(r"[A-Z].{8,}\.", info.help)
        declared = info.default if isinstance(info.default, str) else f"--{field.name}"
        is_argument = isinstance(info, typer.models.ArgumentInfo)
        assert (field.name if is_argument else declared.replace("_", "-")) in text


def test_help_names_every_task_data_set_and_usual_budget():
    text = " ".join(hardstep("compare", "--help").stdout.replace("│", " ").split())
    names = {*tasks.BY_DATA, *tasks.BY_DATA["digits"], *tasks.BY_DATA["mnist"]}
    assert all(re.search(rf"\b{name}\b", text) for name in names)
    usual = [budget_of(tasks.find("mlp"), axis, None).amount for axis in ("evals", "time")]
    assert "{:,.0f} evaluations or {:.0f} seconds".format(*usual) in text


def test_help_and_import_do_not_load_torch():
    code = (
        "import sys, hardstep, hardstep.cli.main as m\n"
        "for command in ('', *m.COMMANDS):\n"
        "    try: m.app([*command.split(), '--help'])\n"
        "    except SystemExit: pass\n"
        "assert 'torch' not in sys.modules, 'torch was loaded'\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("Usage:") == 1 + len(COMMANDS)


def test_version_is_printed():
    assert hardstep("--version") == (0, f"{package.__version__}\n", "")


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["train", "nonsense"], "no task is called 'nonsense'; there is argmax, binary, int8"),
        (["train", "binry"], "no task is called 'binry'; did you mean 'binary'?"),
        (["train", "mlp", "--data", "nonsense"], "no data set is called 'nonsense'; there is dig"),
        (["train", "none.py:task"], "there is no file none.py in"),
        (["train", OWN, "--data", "mnist"], f"{OWN}:ferns brings its own data ('own'), so data 'm"),
        (["train", f"{OWN}:fern"], f"no task of {OWN} is called 'fern'; did you mean 'ferns'?"),
        (["train", "mlp", "--resume"], "no run to resume"),
        (["train", "mlp", "--out", "/proc/x"], f"/proc/x {NO_FILES} --out\n"),
        (["train", "mlp", "--out", "suite.toml"], "suite.toml is a file; name a folder with --out"),
        (
            ["train", "mlp", "--out", "/dev/null/x"],
            "/dev/null/x would lie in /dev/null, a file; name another with --out\n",
        ),
        (["evaluate", "none.pt"], "no checkpoint at none.pt"),
        (["compare", "mlp", "--methods", "mezo,mezo"], "--methods has mezo 2 times"),
        (["compare", "mlp", "--records", "/proc/x"], f"/proc/x {NO_FILES} --records\n"),
        (["tune", "mlp", "--records", "/proc/x"], f"/proc/x {NO_FILES} --records\n"),
        (["maxsat"], "maxsat needs a file or --random N, and not both\n"),
        (["maxsat", "suite.toml", "--random", 10], "maxsat needs a file or --random N, and not"),
        (["maxsat", "--random", 10, "--seconds", 1, "--steps", 1], "maxsat takes --seconds or --s"),
        (["maxsat", "--random", 10, "--seconds", -1], "--seconds must be above 0, got -1"),
        (["maxsat", "missing.cnf"], "missing.cnf"),
        (["maxsat", "--random", 2], "random_ksat: needs 1 <= k <= num_variables"),
        (["maxsat", "--random", 10, "--ratio", -1], "random_ksat: ratio"),
        (["diagnose", "mlp", "--picture", "/proc/n/x.png"], f"/proc/n/x.png {NO_FILES} --picture"),
        (["theory", "--html", "/proc/x.html"], f"/proc/x.html {NO_FILES} --html\n"),
        (["bench", "run", "suite.toml", "--records", "/proc/x"], f"/proc/x {NO_FILES} --records\n"),
        (["bench", "table", "."], "there is no file *.jsonl in .; name one with records"),
        (["bench", "table", "nosuch.jsonl"], "there is no file nosuch.jsonl; `hardstep bench"),
    ],
)
def test_bad_input_is_one_sentence_and_exit_code_2(tmp_path, arguments, sentence):
    (tmp_path / "suite.toml").write_text(SUITE)
    done = hardstep(*arguments, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"hardstep: {sentence}")
    assert done.stderr.count("\n") == 1
    assert [path.name for path in tmp_path.iterdir()] == ["suite.toml"]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["train", "mlp", "--steps", "0"], "--steps"),
        (["train"], "Missing argument"),
        (["nonsense"], "No such command"),
    ],
)
def test_what_cannot_be_parsed_is_named_with_exit_code_2(arguments, sentence):
    done = hardstep(*arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert sentence in done.stderr


def test_a_process_ends_with_the_code_and_the_sentence(tmp_path):
    done = subprocess.run([*HARDSTEP, "maxsat"], capture_output=True, text=True, cwd=tmp_path)
    sentence = "hardstep: maxsat needs a file or --random N, and not both\n"
    assert (done.returncode, done.stdout, done.stderr) == (2, "", sentence)


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


IN_TURN = """
import json, sys
from hardstep.cli.main import main
for line in json.loads(sys.argv[1]):
    sys.argv = ["hardstep", *line.split()]
    try:
        main()
    except SystemExit as ended:
        assert ended.code == 0, line
"""


@pytest.mark.slow
def test_no_warning_reaches_a_user(tmp_path):
    (tmp_path / "suite.toml").write_text(SUITE)
    lines = [
        "train snn --steps 1 --out run --coverage",
        "evaluate run",
        "compare mlp --match steps --budget 1 --seeds 1 --records runs.jsonl --methods "
        "polystep,openai-es,cma-es,eggroll,mezo,spsa,random,adam",
        "tune mlp --method mezo --match steps --budget 1 --records runs.jsonl",
        "maxsat --random 20 --steps 2 --polish",
        "diagnose staircase --picture flat.png",
        "theory --only A1 --html theory.html",
        "bench run suite.toml --processes 2 --records runs.jsonl",
        "bench table runs.jsonl",
        "report runs.jsonl",
    ]
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", IN_TURN, json.dumps(lines)],
        capture_output=True, text=True, cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "warning" not in done.stderr.lower()
