import pytest
import torch
from torch import nn

from hardstep import tasks
from hardstep.data import Split
from hardstep.errors import ConfigError
from hardstep.nn import build
from hardstep.optim import PolyStep
from tests.tasks.images import write_images

# parameters, evaluations per step, steps, validation images
PAPER = {
    "snn": (101_770, 4_887, 3_180, 6_000),
    "mlp": (101_770, 2_520, 3_180, 6_000),  # the paper: 9,612 on every third step
    "int8": (118_282, 12_060, 3_180, 6_000),
    "binary": (118_282, 12_060, 3_180, 6_000),
    "ternary": (118_282, 12_060, 3_180, 6_000),
    "staircase": (118_282, 6_183, 3_180, 6_000),
    "argmax": (119_306, 13_212, 3_180, 6_000),
    "moe": (235_672, 15_894, 6_330, 12_000),
}
CONVOLUTIONS = {"csnn": 29_826, "bcnn": 33_802}
EACH_TASK = pytest.mark.parametrize("name", [*PAPER, *CONVOLUTIONS])
OF_THE_PAPER = pytest.mark.parametrize("name", PAPER)


def split(count):
    return Split(torch.zeros(count, 1), torch.zeros(count, dtype=torch.long))


@pytest.fixture
def folder(tmp_path, monkeypatch):
    write_images(tmp_path)
    monkeypatch.setenv("HARDSTEP_DATA", str(tmp_path))


def test_the_tasks_are_those_of_the_digits():
    assert {*PAPER, *CONVOLUTIONS} == set(tasks.BY_DATA["mnist"]) == set(tasks.BY_DATA["digits"])
    assert set(CONVOLUTIONS) == set(tasks.BY_DATA["fashion"])


@OF_THE_PAPER
def test_sizes_are_the_papers_and_budgets_at_most(name, monkeypatch, tmp_path):
    monkeypatch.setenv("HARDSTEP_DATA", str(tmp_path))  # nothing there, and nothing is read
    task = tasks.find(name, "mnist")
    parameters, evaluations, steps, _ = PAPER[name]
    model = build(task.model, 0)
    assert sum(p.numel() for p in model.parameters()) == parameters
    assert PolyStep(model, task.settings(steps), seed=0).evaluations_per_step == evaluations
    assert (task.batch_size, task.steps) == (512, steps)


@pytest.mark.parametrize("name", CONVOLUTIONS)
@pytest.mark.parametrize("data", ["digits", "mnist", "fashion"])
def test_networks_of_convolutions_are_small_and_their_steps_affordable(name, data, monkeypatch):
    monkeypatch.setenv("HARDSTEP_DATA", "/nowhere")  # nothing is read
    task = tasks.find(name, data)
    model = build(task.model, 0)
    parameters = sum(p.numel() for p in model.parameters())
    assert parameters == CONVOLUTIONS[name] or (
        data == "digits" and parameters < CONVOLUTIONS[name]
    )
    assert PolyStep(model, task.settings(task.steps), seed=0).evaluations_per_step < 5_000
    assert task.data_name == data


@pytest.mark.parametrize("name", CONVOLUTIONS)
@pytest.mark.parametrize("data", ["digits", "mnist"])
@pytest.mark.slow
def test_convolutions_are_followed_as_events(name, data):
    task = tasks.find(name, data)
    model = build(task.model, 0)
    pixels = 64 if data == "digits" else 784
    generator = torch.Generator().manual_seed(0)
    x, y = torch.randn(16, pixels, generator=generator), torch.arange(16) % 10
    optimizer = PolyStep(model, task.settings(10), seed=0)
    tiers = {one.name: one.path for one in optimizer.explain(x, y, task.loss_fn).parameters}
    convolutions = [
        f"{place}.{part}"
        for place, module in model.named_modules()
        if isinstance(module, nn.Conv2d)
        for part in ("weight", "bias")
    ]
    assert len(convolutions) >= 4
    assert {tiers[name] for name in convolutions} == {"events"}


@EACH_TASK
@pytest.mark.usefixtures("folder")
def test_models_fit_their_data(name):
    task = tasks.find(name, "mnist")
    data = task.data(0)
    scores = build(task.model, 0)(data.valid.inputs)
    assert scores.shape == (len(data.valid), data.num_classes)
    assert torch.isfinite(task.loss_fn(scores, data.valid.labels))


@pytest.mark.usefixtures("folder")
def test_fashion_is_clothing():
    task = tasks.find("csnn", "fashion")
    assert task.data(0).name == "fashion-mnist"
    assert task.title.endswith(", Fashion-MNIST")


def test_a_task_without_these_data_is_refused_with_what_there_is():
    message = "snn comes with data digits or mnist, got 'fashion'; on fashion there are bcnn and"
    with pytest.raises(ConfigError, match=message):
        tasks.find("snn", "fashion")


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


@OF_THE_PAPER
def test_a_whole_run_is_validated_some_40_times_at_a_hundredth_of_its_forward_passes(name):
    task = tasks.find(name, "mnist")
    _, evaluations, steps, images = PAPER[name]
    interval = task.validation_interval(steps, split(images))
    assert 40 <= steps // interval <= 42
    assert images < 0.01 * interval * evaluations * task.batch_size


def test_short_runs_and_small_data_are_validated_as_often_as_they_can_afford():
    large, small = tasks.find("snn", "mnist"), tasks.find("snn", "digits")
    assert large.validation_interval(20, split(6_000)) == 11
    assert small.validation_interval(20, split(143)) == 1
    assert small.validation_interval(200, split(143)) == 5
