import pytest
import torch

from hardstep import tasks
from hardstep.data import Split
from hardstep.nn import build
from hardstep.optim import PolyStep
from tests.tasks.images import write_images

# parameters, evaluations per step, steps, validation images
TABLE = {
    "snn": (101_770, 4_887, 3_180, 6_000),
    "mlp": (101_770, 2_520, 3_180, 6_000),  # the paper: 9,612 on every third step
    "int8": (118_282, 12_060, 3_180, 6_000),
    "binary": (118_282, 12_060, 3_180, 6_000),
    "ternary": (118_282, 12_060, 3_180, 6_000),
    "staircase": (118_282, 6_183, 3_180, 6_000),
    "argmax": (119_306, 13_212, 3_180, 6_000),
    "moe": (235_672, 15_894, 6_330, 12_000),
}
EACH_TASK = pytest.mark.parametrize("name", TABLE)


def split(count):
    return Split(torch.zeros(count, 1), torch.zeros(count, dtype=torch.long))


@pytest.fixture
def folder(tmp_path, monkeypatch):
    write_images(tmp_path)
    monkeypatch.setenv("HARDSTEP_DATA", str(tmp_path))


def test_the_tasks_are_those_of_the_digits():
    assert set(TABLE) == set(tasks.BY_DATA["mnist"]) == set(tasks.BY_DATA["digits"])


@EACH_TASK
def test_sizes_are_the_papers_and_budgets_at_most(name, monkeypatch, tmp_path):
    monkeypatch.setenv("HARDSTEP_DATA", str(tmp_path))  # nothing there, and nothing is read
    task = tasks.find(name, "mnist")
    parameters, evaluations, steps, _ = TABLE[name]
    model = build(task.model, 0)
    assert sum(p.numel() for p in model.parameters()) == parameters
    assert PolyStep(model, task.settings(steps), seed=0).evaluations_per_step == evaluations
    assert (task.batch_size, task.steps) == (512, steps)


@EACH_TASK
@pytest.mark.usefixtures("folder")
def test_models_fit_their_data(name):
    task = tasks.find(name, "mnist")
    data = task.data(0)
    scores = build(task.model, 0)(data.valid.inputs)
    assert scores.shape == (len(data.valid), data.num_classes)
    assert torch.isfinite(task.loss_fn(scores, data.valid.labels))


@pytest.mark.usefixtures("folder")
def test_argmax_sees_clothing_and_the_mixture_both():
    names = {name: tasks.find(name, "mnist").data(0).name for name in ("snn", "argmax", "moe")}
    assert names == {"snn": "mnist", "argmax": "fashion-mnist", "moe": "mnist-and-fashion"}


def test_titles_say_the_sizes_and_what_the_mixture_sees():
    assert "784–128–10 " in tasks.find("snn", "mnist").title
    assert "64–128–10 " in tasks.find("snn", "digits").title
    assert tasks.find("snn", "mnist").title.endswith(", MNIST")
    assert tasks.find("snn", "digits").title.endswith(", bundled digits")
    assert tasks.find("argmax", "mnist").title.endswith(", Fashion-MNIST")
    assert tasks.find("moe", "mnist").title.endswith("MNIST and Fashion-MNIST")
    assert tasks.find("moe", "digits").title.endswith("digits and their negatives")


@EACH_TASK
def test_a_whole_run_is_validated_some_40_times_at_a_hundredth_of_its_forward_passes(name):
    task = tasks.find(name, "mnist")
    _, evaluations, steps, images = TABLE[name]
    interval = task.validation_interval(steps, split(images))
    assert 40 <= steps // interval <= 42
    assert images < 0.01 * interval * evaluations * task.batch_size


def test_short_runs_and_small_data_are_validated_as_often_as_they_can_afford():
    large, small = tasks.find("snn", "mnist"), tasks.find("snn", "digits")
    assert large.validation_interval(20, split(6_000)) == 11
    assert small.validation_interval(20, split(143)) == 1
    assert small.validation_interval(200, split(143)) == 5
