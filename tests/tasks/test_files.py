"""Tasks that a user's file defines: found, refused, trained, resumed and scored again."""

import json
import os
import pickle
import re
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.func import functional_call
from torch.nn.functional import cross_entropy

from hardstep import tasks
from hardstep.cli import diagnose, evaluate, train
from hardstep.data import Batches, digits
from hardstep.errors import CheckpointError, ConfigError
from hardstep.nn import build
from hardstep.optim import PolyStep
from hardstep.optim.presets import general
from hardstep.tasks.files import run_name
from hardstep.training import INTERRUPTED, Callback, fit

HEAD = """
from dataclasses import dataclass
import torch
from torch import nn
from hardstep.data import digits, from_tensors
from hardstep.tasks import Task
from hardstep.training import Metric
"""
SMALL = HEAD + 'small = Task("tiny", "tiny", digits, lambda: nn.Linear(64, 10), steps=3)\n'
GUIDE = (Path(__file__).parents[2] / "docs" / "how-to" / "own-task.md").read_text()
STAIRS, LOADING = re.findall(r"```python\n(.*?)```", GUIDE, re.DOTALL)  # an error to be small


@pytest.mark.parametrize("address", ["own.py", "own.py:small", "own.py:tiny", "./own.py:small"])
def test_a_task_is_found_by_its_file_its_variable_or_its_name(write, address):
    write(SMALL)
    task = tasks.find(address)
    assert (task.title, task.steps, task.data_name) == ("tiny", 3, "own")
    assert task.name == ("own.py:tiny" if address.endswith("tiny") else "own.py:small")
    again = tasks.find(task.name)
    assert (again.name, again.title) == (task.name, task.title)
    assert task.settings(9) == general(9)
    assert len(task.data(0).valid) == 143


def test_a_function_may_make_the_task(write):
    write(SMALL.replace("small =", "def make(unused=7):\n    return"))
    assert tasks.find("own.py:make").steps == 3


def test_a_file_imports_its_neighbors_and_defines_what_can_be_pickled(write):
    write("WIDTH = 10\n", "neighbor_of_own.py")
    write(
        SMALL.replace("\nsmall", "\nfrom neighbor_of_own import WIDTH\nsmall")
        + "@dataclass\nclass Pair:\n    a: 'int' = 1\n\n\ndef make():\n    return small\n"
    )
    before = list(sys.path)
    tasks.find("own.py:make")
    assert sys.path == before
    (module,) = (m for m in sys.modules.values() if "Pair" in vars(m) and "small" in vars(m))
    assert pickle.loads(pickle.dumps(module.make)) is module.make
    assert pickle.loads(pickle.dumps(module.Pair(2))) == module.Pair(2)
    assert module.WIDTH == 10


def test_a_file_is_loaded_once_until_it_changes(write):
    counting = "import sys\nsys.loads_of_own = getattr(sys, 'loads_of_own', 0) + 1\n"
    write(SMALL + counting)
    for _ in range(3):
        assert tasks.find("own.py").steps == 3
    assert sys.loads_of_own == 1
    write(SMALL.replace("steps=3", "steps=4"))
    assert tasks.find("own.py").steps == 4


@pytest.mark.parametrize(
    ("text", "address", "sentence"),
    [
        (SMALL, "none.py:small", r"no file none\.py in .*put it back"),
        (SMALL, "own.txt:small", r"'own.txt:small' is neither a task nor a Python file"),
        ("\0", "own.py:small", r"own\.py cannot be loaded: (ValueError|SyntaxError)"),
        ("x = 1\nif:", "own.py", r"cannot be loaded: SyntaxError: [\w ]+ \(line 2 of own\.py\)$"),
        ("\n\n1 / 0\n", "own.py", r"ZeroDivisionError: division by zero \(line 3 of own\.py\)"),
        ("import not_there\n", "own.py", r"ModuleNotFoundError: .*'not_there' \(line 1 of own"),
        ("raise SystemExit\n", "own.py", r"cannot be loaded: SystemExit \(line 1 of own\.py\)"),
        (SMALL, "own.py:smal", r"no task of own\.py is called 'smal'; did you mean 'small'\?"),
        (SMALL, "own.py:other", r"no task of own\.py is called 'other'; there is small, tiny$"),
        (SMALL.replace("tiny", "small") + "def f(): ...\n", "own.py:other", r"; there is small$"),
        (SMALL + "def maker(): ...\n", "own.py:makes", r"'makes'; did you mean 'maker'\?$"),
        (HEAD + "def f(): ...\n", "own.py:other", r"'other'; it has the functions f$"),
        (SMALL + "size = 3\n", "own.py:size", r"own\.py:size is of type int, not a hardstep"),
        (SMALL + "def f(x): ...\n", "own.py:f", r"own\.py:f is of type function, not a hard"),
        (SMALL + "def f(): ...\n", "own.py:f", r"own\.py:f must return a hardstep\.tasks\.Task"),
        (SMALL + "def f(): 1 / 0\n", "own.py:f", r"ZeroDivisionError: .* \(line 9 of own\.py\)"),
        (SMALL + "from copy import copy\nbig = copy(small)\n", "own.py",
         r"own\.py defines 2 tasks; choose one of own\.py:small, own\.py:big"),
        (HEAD, "own.py", r"own\.py defines no hardstep\.tasks\.Task; define one"),
        (SMALL.replace("steps=3", "steps=0"), "own.py",
         r"ConfigError: Task tiny: steps must be a whole .* >= 1, got 0 \(line 8 of own\.py\)"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_file_is_one_sentence(write, text, address, sentence):
    write(text)
    modules, path = set(sys.modules), list(sys.path)
    with pytest.raises(ConfigError, match=sentence) as refused:
        tasks.find(address)
    assert "\n" not in str(refused.value)
    assert sys.path == path
    if "cannot be loaded" in sentence:
        assert not {name for name in set(sys.modules) - modules if "hardstep_task" in name}


@pytest.mark.parametrize(
    ("part", "wrong", "sentence"),
    [
        ('", digits', '", lambda _: [1]', r"data must return .*from_tensors makes one, got list"),
        ("nn.Linear(64, 10)", "None", r"own\.py:small: model must .* torch\.nn\.Module, got N"),
    ],
)
def test_parts_of_a_wrong_kind_are_refused_when_they_are_used(write, part, wrong, sentence):
    write(SMALL.replace(part, wrong))
    with pytest.raises(ConfigError, match=sentence):
        run("own.py")
    assert not os.path.exists("runs")


def test_data_cannot_be_chosen_for_a_task_that_brings_its_own(write):
    write(SMALL)
    with pytest.raises(ConfigError, match=r"own\.py:small brings its own data \('own'\), so data"):
        tasks.find("own.py:small", "mnist")
    write(SMALL.replace("steps=3", "steps=3, data_name='mnist'"))
    assert tasks.find("own.py:small", "mnist").data_name == "mnist"


def test_folders_of_runs_are_called_after_file_task_and_data(write, tmp_path):
    (tmp_path / "my tasks").mkdir()
    text = SMALL.replace('"tiny", "', '"a/b c", "').replace("steps=3", "data_name='../d'")
    name = write(text, "my tasks/own.py")
    task = tasks.find(f"{name}:a/b c")
    assert run_name(task) == "own-a-b-c-..-d"
    folder = train.choose_folder(task, train.TrainOptions(task.name, seed=4))
    assert folder.as_posix() == "runs/own-a-b-c-..-d-seed4"
    assert run_name(tasks.find("snn", "mnist")) == "snn-mnist"


def run(address="stairs.py:sine", **options):
    return train.run_train(train.TrainOptions(address, **options))


def score(path, task="stairs.py", **options):
    return evaluate.run_evaluate(evaluate.EvaluateOptions(path, task=task, **options))


class StopsAfterThreeSteps(Callback):
    def on_step(self, run, report):
        if run.step == 3:
            run.stop(INTERRUPTED)


def test_an_error_to_be_small_is_trained_selected_resumed_drawn_and_scored_again(
    write, tmp_path, monkeypatch, capsys
):
    write(STAIRS, "stairs.py")
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    assert run(steps=8, out=whole) == 0
    said = capsys.readouterr().out
    result = json.loads((whole / "result.json").read_text())
    assert (result["task"], result["data"]) == ("stairs.py:sine", "own")
    assert result["metric"]["higher_is_better"] is False
    scores = [json.loads(line) for line in (whole / "log.jsonl").read_text().splitlines()]
    values = [row["value"] for row in scores if row["event"] == "validation"]
    assert result["valid_mse"] == min(values)
    assert result["test_mse"] < 0.3  # a constant has 0.44
    lines = said.splitlines()
    shown = f"{result['test_mse']:.4g}"
    assert lines[0].startswith(f"test mse    {shown}  (80 test examples)")
    assert lines[1].startswith(f"validation  {min(values):.4g}  at step")
    assert "hardstep train stairs.py:sine --seed 0 --out" in said
    assert (whole / "picture.png").stat().st_size > 10_000
    options = train.TrainOptions("stairs.py:sine", steps=8, out=parts)
    with monkeypatch.context() as patch:
        patch.setattr(train, "ProgressBar", StopsAfterThreeSteps)
        assert train.run_train(options) == 130
    assert train.run_train(replace(options, resume=True, json=True)) == 0
    resumed = json.loads(capsys.readouterr().out)
    for name in ("test_mse", "valid_mse", "evaluations"):
        assert resumed[name] == result[name]
    assert score(parts / "checkpoint.pt", json=True) == 0
    again = json.loads(capsys.readouterr().out)
    assert again["test_mse"] == result["test_mse"]
    assert score(parts / "checkpoint.pt") == 0
    assert capsys.readouterr().out.startswith(f"test mse   {shown}  (80 examples)\nvalidation ")


def test_the_guide_loads_the_selected_weights_without_hardstep_and_continues_the_last_run(
    write, tmp_path, monkeypatch, capsys
):
    write(STAIRS, "stairs.py")
    for steps in (3, 2):  # the second goes to a folder of its own
        assert run(steps=steps) == 0
    folder = tmp_path / "runs" / "stairs-sine-own-seed0"
    assert "hardstep" not in LOADING
    monkeypatch.syspath_prepend(tmp_path)
    exec(LOADING, {})
    del sys.modules["stairs"]
    said = capsys.readouterr().out.splitlines()[-1]
    saved = torch.load(folder / "checkpoint.pt", weights_only=True)
    assert (saved["meta"]["task"], saved["meta"]["steps"]) == ("stairs.py:sine", 3)
    model = tasks.find("stairs.py:sine").model()
    model.load_state_dict(saved["best_weights"])
    assert float(said) == pytest.approx(model(torch.tensor([[0.5]])).item(), rel=1e-6)
    run(resume=True, json=True)
    result = json.loads(capsys.readouterr().out)
    assert result["steps"] == 2
    assert result["checkpoint"] == "runs/stairs-sine-own-seed0-2/checkpoint.pt"
    with pytest.raises(CheckpointError, match="seed0-2 holds a run with steps 2, not 9; resume"):
        run(steps=9, resume=True)


def test_changed_data_change_the_score_as_the_guide_says(write, tmp_path, capsys):
    write(STAIRS, "stairs.py")
    run(steps=2, out=tmp_path / "run", json=True)
    before = json.loads(capsys.readouterr().out)
    write(STAIRS.replace("torch.sin(2 * x)", "torch.sin(2 * x) + 9"), "stairs.py")
    score(tmp_path / "run", json=True)
    assert json.loads(capsys.readouterr().out)["test_mse"] > before["test_mse"] + 50


def test_a_file_of_double_precision_trains_as_the_guide_says(write, tmp_path):
    double = "torch.set_default_dtype(torch.float64)\n"
    text = STAIRS.replace("\n\n\nclass", f"\n\n{double}\n\nclass", 1)
    write(text.replace(".float()", ".to(x.dtype)"), "stairs.py")  # which it chose itself
    try:
        run(steps=1, out=tmp_path / "run")
    finally:
        torch.set_default_dtype(torch.float32)
    saved = torch.load(tmp_path / "run" / "checkpoint.pt", weights_only=True)
    assert {weight.dtype for weight in saved["model"].values()} == {torch.float64}


def test_a_file_that_moved_or_changed_is_one_sentence(write, tmp_path):
    write(SMALL)
    out = tmp_path / "run"
    assert run("own.py", steps=1, out=out) == 0
    write(SMALL.replace("nn.Linear(64, 10)", "nn.Linear(64, 10, bias=False)"))
    with pytest.raises(CheckpointError, match=r"does not fit the model of own\.py:small, which"):
        score(out / "checkpoint.pt", task="own.py")
    write(SMALL.replace("steps=3", "metric=Metric('error', lambda o, t: o.mean())"))
    with pytest.raises(CheckpointError, match=r"not scored by error, the metric of own\.py:small"):
        run("own.py", out=out, resume=True)
    write(SMALL.replace("nn.Linear(64, 10)", "nn.Linear(64, 10, bias=False)"))
    (out / "result.json").unlink()
    with pytest.raises(CheckpointError, match=r"does not fit the model of own\.py:small, which"):
        run("own.py", out=out, resume=True)
    os.rename("own.py", "moved.py")
    with pytest.raises(ConfigError, match=r"no file own\.py in .*if it was moved, put it back"):
        score(out / "checkpoint.pt", task="own.py")
    with pytest.raises(CheckpointError, match=r"no file /.*own\.py; say where it is now with --ta"):
        score(out / "checkpoint.pt", task=None)
    with pytest.raises(CheckpointError, match=r"run with task 'own\.py:small', not 'moved\.py"):
        run("moved.py", out=out, resume=True)


def test_a_users_task_is_diagnosed_however_few_examples_it_has(write, capsys):
    write(STAIRS.replace("-2, 2, 400", "-2, 2, 40"), "stairs.py")
    assert diagnose.run_diagnose(diagnose.DiagnoseOptions("stairs.py:sine", json=True)) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["recommended"]["probe_radius"] > 0
    assert 0 <= found["here"]["flat_pairs"] <= 1


class Spike(torch.autograd.Function):
    """A step forward, a bump backward: what surrogate-gradient libraries are made of."""

    @staticmethod
    def forward(ctx, membrane):
        ctx.save_for_backward(membrane)
        return (membrane > 0).float()

    @staticmethod
    def backward(ctx, gradient):
        (membrane,) = ctx.saved_tensors
        return gradient / (1 + 25 * membrane.abs()) ** 2


class Leaky(nn.Module):
    """A layer of leaky units that keeps its membrane as a buffer, as snnTorch's does."""

    def __init__(self):
        super().__init__()
        self.register_buffer("membrane", torch.zeros(0), persistent=False)

    def forward(self, current):
        if self.membrane.shape != current.shape:
            self.membrane = torch.zeros_like(current)
        fired = Spike.apply(self.membrane - 1).detach()
        self.membrane = 0.9 * self.membrane + current - fired
        return Spike.apply(self.membrane - 1)


class Spiking(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(64, 32), nn.Linear(32, 10)
        self.hidden, self.output = Leaky(), Leaky()

    def forward(self, inputs):
        for layer in (self.hidden, self.output):
            layer.membrane = torch.zeros_like(layer.membrane)
        spikes = [self.output(self.last(self.hidden(self.first(inputs)))) for _ in range(8)]
        return torch.stack(spikes).sum(0)


def test_losses_through_a_custom_gradient_are_those_of_plain_forward_passes():
    train, model = digits(0).train, build(Spiking, 0)
    optimizer = PolyStep(model, general(10, rank=1), seed=0)
    inputs, labels = train.inputs[:32], train.labels[:32]
    proposal = optimizer.propose()
    losses = optimizer.evaluate(proposal, inputs, labels, cross_entropy).flatten()
    candidates = optimizer.candidates(proposal)
    with torch.no_grad():
        plain = [
            float(cross_entropy(functional_call(model, candidates.parameters(n), inputs), labels))
            for n in range(0, len(losses), 4)
        ]
    assert losses.std() > 0.01
    expected = torch.tensor(plain).double()
    torch.testing.assert_close(losses[::4].double(), expected, rtol=1e-5, atol=1e-5)


def test_a_model_with_a_custom_gradient_learns_without_it():
    data = digits(0)
    model = build(Spiking, 0)
    optimizer = PolyStep(model, general(12, rank=2), seed=0)
    valid = Batches(data.valid, 143, 0, shuffle=False)
    outcome = fit(model, Batches(data.train, 128, 0), valid, optimizer=optimizer, steps=12)
    assert outcome.best.value < 0.6 * 2.3  # the loss of guessing is ln 10
