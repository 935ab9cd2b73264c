import matplotlib.image
import pytest
import torch
from torch import nn

from hardstep import tasks
from hardstep.data import Batches, Split
from hardstep.errors import ConfigError
from hardstep.nn import SpikingNet, build
from hardstep.optim import PolyStep
from hardstep.tasks import Task
from hardstep.tasks.plots import draw
from hardstep.training import Metric, Validation, fit

LOG = [
    {"event": "step", "step": 1, "loss": 2.3},
    {"event": "step", "step": 2, "loss": 1.9},
    {"event": "validation", "step": 2, "value": 0.4},
]


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(tasks.BY_DATA["digits"]))
def test_every_task_takes_a_step_that_is_not_dead(name):
    task = tasks.find(name)
    data = task.data(1)
    model = build(task.model, 1)
    optimizer = PolyStep(model, task.settings(10), seed=1)
    inputs, labels = data.train.inputs[: task.batch_size], data.train.labels[: task.batch_size]
    loss = optimizer.step(inputs, labels, task.loss_fn)
    assert loss < 5.0
    assert optimizer.report.dead_share < 0.5
    assert 0.0 <= task.score(model, data.valid) <= 1.0


def assert_drawn(path):
    pixels = matplotlib.image.imread(path)
    assert pixels.shape[0] > 500
    assert pixels.std() > 0.05


@pytest.mark.parametrize("name", ["snn", "moe", "csnn", "bcnn"])
def test_the_picture_is_drawn_from_the_log(tmp_path, name):
    task = tasks.find(name)
    data = task.data(1)
    result = {"test_accuracy": 0.5, "selected_step": 2}
    draw(tmp_path / "p.png", task, build(task.model, 1), data.valid, LOG, result)
    assert_drawn(tmp_path / "p.png")


class Returns(torch.nn.Module):
    """A model that answers with whatever a function makes of its inputs."""

    def __init__(self, answer):
        super().__init__()
        self.answer = answer

    def forward(self, inputs):
        return self.answer(inputs)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "labels"),
    [
        (Returns(lambda x: x[:, :1]), torch.linspace(-1, 1, 30)[:, None]),
        (Returns(lambda x: x[:, 0]), torch.linspace(-1, 1, 30)),
        (Returns(lambda x: x[:, :1] / 0), torch.linspace(-1, 1, 30)[:, None]),
        (Returns(lambda x: torch.eye(50)[x[:, 0].long().abs()]), torch.arange(30)),
        (Returns(lambda x: (x, x)), torch.arange(30)),
        (Returns(lambda x: x.T), torch.arange(30)),
        (Returns(lambda x: x[:, :, None]), torch.arange(30)),
        (SpikingNet([torch.nn.Unflatten(1, (2, 2))]), torch.arange(30)),
    ],
    ids=["columns", "numbers", "infinite", "many classes", "pair", "turned", "3d", "2d spikes"],
)
def test_pictures_are_drawn_whatever_the_outputs_are(tmp_path, model, labels):
    error = Metric("mean error", lambda output, target: output.mean())
    task = Task("own", "own", tasks.find("mlp").data, lambda: model, metric=error)
    inputs = torch.linspace(-1, 1, 120).reshape(30, 4)
    log = [*LOG, {"event": "step", "step": 3, "loss": None}]
    result = {"test_mean_error": 0.5, "selected_step": 2}
    draw(tmp_path / "p.png", task, model, Split(inputs, labels), log, result)
    assert_drawn(tmp_path / "p.png")


@pytest.mark.parametrize("name", ["binary", "ternary"])
def test_signs_as_weights_learn_the_digits(name):
    task = tasks.find(name)
    data = task.data(10)
    model = build(task.model, 10)
    optimizer = PolyStep(model, task.settings(10), seed=10)
    valid = Validation(Batches(data.valid, 143, 10, shuffle=False), task.metric)
    outcome = fit(model, Batches(data.train, 128, 10), valid, optimizer=optimizer, steps=10)
    assert outcome.best.value > 0.7


@pytest.mark.parametrize("data", ["digits", "mnist"])
def test_the_plain_network_is_also_called_mnist(data):
    assert tasks.find("mnist", data) is tasks.find("mlp", data)
    assert tasks.find("mnist", data).name == "mlp"
    assert tasks.find("mnist", data).data_name == data


def test_scores_count_right_answers():
    task = tasks.find("mlp")
    data = task.data(0)

    class Knows(torch.nn.Module):
        def forward(self, inputs):
            found = (inputs[:, None] == data.valid.inputs[None]).all(-1).int().argmax(1)
            return torch.nn.functional.one_hot(data.valid.labels[found], 10).float()

    assert task.score(Knows(), data.valid) == 1.0


def test_unknown_names_are_refused_with_the_nearest_or_with_all():
    with pytest.raises(ConfigError, match="no task is called 'ternay'; did you mean 'ternary'"):
        tasks.find("ternay")
    with pytest.raises(
        ConfigError,
        match="no task is called 'x'; there is acrobot, argmax, bcnn, binary, cartpole, csnn",
    ):
        tasks.find("x")
    with pytest.raises(ConfigError, match="no data set is called 'minst'; did you mean 'mnist'"):
        tasks.find("mlp", "minst")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"steps": 0}, "Task own: steps must be a whole number >= 1, got 0"),
        ({"batch_size": -2}, "Task own: batch_size must be a whole number >= 1, got -2"),
        ({"steps": "9"}, "Task own: steps must be a whole number >= 1, got '9'"),
        ({"data": tasks.find("mlp").data(0)}, "Task own: data must be a function, got DataSet"),
        ({"data": lambda: 0}, r"Task own: data is called as data\(seed\), got a function of \(\)"),
        ({"model": lambda seed: 0}, r"model is called as model\(\), got a function of \(seed\)"),
        ({"settings": lambda: 0}, r"settings is called as settings\(steps\), got a function of \("),
        ({"loss_fn": lambda o: 0}, r"called as loss_fn\(output, target\), got a function of \(o\)"),
        ({"twin": nn.Linear(1, 1)}, r"twin must be a function .*got a module \(Linear\)"),
        (
            {"model": nn.Linear(1, 1)},
            r"model must be a function that returns a new module, got a module \(Linear\); put "
            "lambda: before it, or give its class",
        ),
        (
            {"metric": lambda output, target: 1.0},
            r"metric must be a hardstep\.training\.Metric, got function; write Metric\(",
        ),
        ({"metric": "accuracy"}, r"metric must be a hardstep\.training\.Metric, got str; write"),
    ],
)
def test_a_task_of_wrong_parts_is_refused(changes, message):
    mlp = tasks.find("mlp")
    parts = {"data": mlp.data, "model": mlp.model}
    assert Task("own", "own", **parts).settings(9) == mlp.settings(9)
    with pytest.raises(ConfigError, match=message):
        Task("own", "own", **parts | changes)
