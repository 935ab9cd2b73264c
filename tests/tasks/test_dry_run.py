"""Mistakes in a user's task: one sentence that names the field, before anything is done."""

import os
import random
import re
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from hardstep import tasks
from hardstep.cli import bench, compare, diagnose, evaluate, train, tune
from hardstep.data import from_tensors
from hardstep.errors import ConfigError
from hardstep.nn import build
from hardstep.tasks.dry_run import try_model, try_task
from tests.cli.program import hardstep

OWN = """
import torch
from torch import nn
from hardstep.data import from_tensors
from hardstep.tasks import Task
from hardstep.training import Metric

labels = torch.arange(60) % 3
labels[:20] = 0  # the first batch lacks the largest class


def data(seed):
    return from_tensors(torch.linspace(-1, 1, 240).reshape(60, 4), labels, seed)


def model():
    return nn.Linear(4, 3)


def accurate(output, target):
    return (output.argmax(1) == target).float()


own = Task("own", "own", data, model, steps=2, batch_size=8)
"""
WRONG = {  # what is replaced, by what, and what is said
    "outputs": (
        "nn.Linear(4, 3)", "nn.Linear(4, 2)",
        "own.py:own: loss_fn fails on output float32 of shape (8, 2) and labels int64 of shape "
        "(8,) from 0 to 2: IndexError: Target 2 is out of bounds; give the model 3 outputs",
    ),
    "inputs": (
        "nn.Linear(4, 3)", "nn.Linear(5, 3)",
        "own.py:own: model fails on inputs float32 of shape (8, 4): RuntimeError: mat1 and mat2 "
        "shapes cannot be multiplied (8x4 and 5x3)",
    ),
    "precision": (
        "nn.Linear(4, 3)", "nn.Linear(4, 3).double()",
        "own.py:own: model fails on inputs float32 of shape (8, 4): RuntimeError: mat1 and mat2 "
        "must have the same dtype, but got Float and Double; its parameters are float64: give it "
        ".float(), or data of that type",
    ),
    "lazy": (
        "nn.Linear(4, 3)", "nn.LazyLinear(3)",
        "own.py:own: model has a parameter without a size, weight; give sizes in the place of lazy "
        "modules, or call the model once in the function that makes it",
    ),
    "file": (
        "torch.linspace(-1, 1, 240)", "torch.load('none.pt')",
        "own.py:own: data cannot be made: FileNotFoundError: [Errno 2] No such file or directory: "
        "'none.pt' (line 13 of own.py)",
    ),
    "examples": (
        "labels, seed", "labels - 1, seed",
        "own.py:own: data cannot be made: DataError: own: 33 of 60 labels are negative, the first "
        "at [0]: -1; number classes from 0, as numpy.unique(labels, return_inverse=True)[1] does, "
        "or give floating point if they are numbers to predict (line 13 of own.py)",
    ),
    "model": (
        "nn.Linear(4, 3)", "nn.Linear(4, 3, 1 / 0)",
        "own.py:own: model cannot be made: ZeroDivisionError: division by zero (line 17 of own.py)",
    ),
    "settings": (
        "steps=2", "settings=lambda steps: 5",
        "own.py:own: settings must return a hardstep.Settings, as hardstep.presets make them, got "
        "int",
    ),
    "loss": (
        "steps=2", "loss_fn=lambda output, target: {}['mine']",
        "own.py:own: loss_fn fails on output float32 of shape (8, 3) and labels int64 of shape "
        "(8,) from 0 to 2: KeyError: 'mine' (line 24 of own.py)",
    ),
    "losses": (
        "steps=2", "loss_fn=nn.CrossEntropyLoss(reduction='none')",
        "own.py:own: loss_fn must return one number, the mean over a batch, got float32 of shape "
        "(8,); reduce it, for instance with .mean()",
    ),
    "a loss beyond numbers": (
        "steps=2", "loss_fn=lambda output, target: 10**400",
        "own.py:own: loss_fn must return one number, the mean over a batch, got of type int; "
        "reduce it, for instance with .mean()",
    ),
    "metric": (
        "steps=2", "metric=Metric('accurate', accurate, True)",
        "own.py:own: metric must return one number, the mean over a batch, got float32 of shape "
        "(4,); reduce it, for instance with .mean()",
    ),
    "bare metric": (
        "steps=2", "metric=accurate",
        "own.py cannot be loaded: ConfigError: Task own: metric must be a hardstep.training.Metric,"
        ' got function; write Metric("name", function, higher_is_better=True), or False (line 24 '
        "of own.py)",
    ),
    "accuracy of numbers": (
        "labels, seed", "labels.float(), seed",
        "own.py:own: metric is accuracy, which compares classes, and labels are float32 of shape "
        "(8,); make classes whole numbers, or give another metric, such as "
        'Metric("mse", torch.nn.functional.mse_loss)',
    ),
}  # fmt: skip
SUITE = """
[[run]]
tasks = ["mlp", "own.py"]
methods = ["mezo"]
seeds = [0]
match = "steps"
budget = 1
"""


@pytest.mark.parametrize("case", WRONG)
def test_a_mistake_is_one_sentence_before_anything_is_written(write, tmp_path, case):
    right, wrong, sentence = WRONG[case]
    write(OWN.replace(right, wrong))
    with pytest.raises(ConfigError) as refused:
        train.run_train(train.TrainOptions("own.py", out=tmp_path / "run"))
    assert str(refused.value) == sentence
    assert os.listdir(tmp_path) == ["own.py"]


def test_on_the_command_line_it_is_that_sentence_and_exit_code_2(write, tmp_path):
    right, wrong, sentence = WRONG["file"]
    write(OWN.replace(right, wrong))
    ended = hardstep("train", "own.py")
    assert (ended.returncode, ended.stdout) == (2, "")
    assert ended.stderr == f"hardstep: {sentence}\n"
    assert os.listdir(tmp_path) == ["own.py"]


def commands(tmp_path):
    records = tmp_path / "runs.jsonl"
    return {
        "compare": lambda: compare.run_compare(compare.CompareOptions("own.py", records=records)),
        "tune": lambda: tune.run_tune(tune.TuneOptions("own.py", records=records)),
        "bench run": lambda: bench.run_suite(bench.SuiteOptions(tmp_path / "suite.toml", records)),
        "diagnose": lambda: diagnose.run_diagnose(diagnose.DiagnoseOptions("own.py")),
    }


@pytest.mark.parametrize(
    ("command", "case"),
    [
        ("compare", "outputs"),
        ("tune", "metric"),
        ("bench run", "metric"),
        ("bench run", "file"),
        ("diagnose", "outputs"),
        ("diagnose", "metric"),
    ],
)
def test_every_command_says_it_before_its_first_run(write, tmp_path, command, case):
    right, wrong, sentence = WRONG[case]
    write(OWN.replace(right, wrong))
    write(SUITE, "suite.toml")
    with pytest.raises(ConfigError) as refused:
        commands(tmp_path)[command]()
    assert str(refused.value) == sentence
    assert sorted(os.listdir(tmp_path)) == ["own.py", "suite.toml"]


def test_evaluate_says_it_before_the_test_part_is_opened(write, tmp_path):
    write(OWN)
    assert train.run_train(train.TrainOptions("own.py", out=tmp_path / "run")) == 0
    right, wrong, sentence = WRONG["metric"]
    write(OWN.replace(right, wrong))
    with pytest.raises(ConfigError, match=f"^{re.escape(sentence)}$"):
        evaluate.run_evaluate(evaluate.EvaluateOptions(tmp_path / "run", task="own.py"))


def generators():
    python, numpy = random.getstate(), np.random.get_state()[1].tolist()  # noqa: NPY002
    return python, numpy, torch.get_rng_state().tolist()


DRAWING = "import random\nimport numpy as np\n" + OWN.replace(
    "    return from", "    random.random(), np.random.rand(), torch.rand(1)\n    return from"
).replace("nn.Linear(4, 3)", "nn.Sequential(nn.BatchNorm1d(4), nn.Dropout(), nn.Linear(4, 3))")


def test_a_trial_leaves_generators_weights_and_statistics_as_they_were(write):
    write(DRAWING)
    task = tasks.find("own.py")
    before = generators()
    try_task(task, seed=0)
    assert generators() == before
    dataset, model = task.data(0), build(task.model, 0)
    kept = {name: value.clone() for name, value in model.state_dict().items()}
    try_model(task, dataset, model)
    assert model.training
    assert not dataset.test_reads
    assert all(torch.equal(kept[name], value) for name, value in model.state_dict().items())


def test_a_task_of_ours_is_not_loaded_for_a_dry_run():
    def data(seed):
        raise AssertionError

    try_task(replace(tasks.find("mlp"), data=data), seed=0)


def test_a_batch_as_small_as_the_data_is_enough(write):
    write(OWN.replace("batch_size=8", "batch_size=1000"))
    task = tasks.find("own.py")
    few = from_tensors(torch.zeros(5, 4), torch.arange(5) % 3, seed=0, valid=0.3)
    try_model(task, few, nn.Linear(4, 3))
