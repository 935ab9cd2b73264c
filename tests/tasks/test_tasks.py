import matplotlib.image
import pytest
import torch

from hardstep import tasks
from hardstep.errors import ConfigError
from hardstep.nn import build
from hardstep.optim import PolyStep
from hardstep.tasks.pictures import draw

LOG = [
    {"event": "step", "step": 1, "loss": 2.3},
    {"event": "step", "step": 2, "loss": 1.9},
    {"event": "validation", "step": 2, "value": 0.4},
]


@pytest.mark.parametrize("name", sorted(tasks.BY_DATA["digits"]))
def test_every_task_takes_a_step_that_is_not_dead(name):
    task = tasks.find(name)
    data = task.data(1)
    model = build(task.model, 1)
    optimizer = PolyStep(model, task.settings(10), seed=1)
    loss = optimizer.step(data.train.inputs[:32], data.train.labels[:32], task.loss_fn)
    assert loss < 5.0
    assert optimizer.report.dead_share < 0.5
    assert 0.0 <= task.score(model, data.valid) <= 1.0


@pytest.mark.parametrize("name", ["snn", "moe"])
def test_the_picture_is_drawn_from_the_log(tmp_path, name):
    task = tasks.find(name)
    data = task.data(1)
    result = {"test_accuracy": 0.5, "selected_step": 2}
    draw(tmp_path / "p.png", task.title, build(task.model, 1), data.valid, LOG, result)
    pixels = matplotlib.image.imread(tmp_path / "p.png")
    assert pixels.shape[0] > 500
    assert pixels.std() > 0.05


def test_scores_count_right_answers():
    task = tasks.find("mlp")
    data = task.data(0)

    class Knows(torch.nn.Module):
        def forward(self, inputs):
            found = (inputs[:, None] == data.valid.inputs[None]).all(-1).int().argmax(1)
            return torch.nn.functional.one_hot(data.valid.labels[found], 10).float()

    assert task.score(Knows(), data.valid) == 1.0


def test_unknown_names_are_refused_with_what_there_is():
    with pytest.raises(ConfigError, match="unknown task 'x'; the tasks are argmax"):
        tasks.find("x")
    with pytest.raises(ConfigError, match="unknown data 'x'"):
        tasks.find("mlp", "x")
