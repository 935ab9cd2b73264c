import pytest
import torch

from hardstep import tasks
from hardstep.errors import ConfigError
from hardstep.nn import binarize, build, quantize
from hardstep.optim import PolyStep
from hardstep.tasks.heads import BUDGET, HEADS
from hardstep.training import Validation, fit

EACH = pytest.mark.parametrize("name", HEADS)


@EACH
@pytest.mark.parametrize(("data", "parameters"), [("sst2-minilm", 770), ("sst2-smollm2", 1154)])
def test_heads_are_linear_and_a_run_takes_the_budget_at_most(name, data, parameters, monkeypatch):
    monkeypatch.setenv("HARDSTEP_DATA", "/nowhere")
    task = tasks.find(name, data)
    assert (task.name, task.data_name) == (name, data)
    model = build(task.model, 0)
    assert sum(p.numel() for p in model.parameters()) == parameters
    optimizer = PolyStep(model, task.settings(task.steps), seed=0)
    taken = task.steps * optimizer.evaluations_per_step
    assert BUDGET - optimizer.evaluations_per_step < taken <= BUDGET


def test_other_data_are_refused_with_those_there_are():
    with pytest.raises(
        ConfigError, match="'mnist' cannot be chosen for it; leave .* or name sst2-sm"
    ):
        tasks.find("head-int8", "mnist")
    with pytest.raises(
        ConfigError, match="on sst2-smollm2 there are head-binary and head-int8 and"
    ):
        tasks.find("snn", "sst2-smollm2")


def test_weights_are_those_that_the_names_say():
    models = {name: build(task.model, 0) for name, task in HEADS.items()}
    weights = {name: model.hard_parameters() for name, model in models.items()}
    assert set(weights["head-binary"][0].unique().tolist()) == {-1.0, 1.0}
    assert torch.equal(weights["head-binary"][1], models["head-binary"].bias)
    for number in (0, 1):  # the bias is rounded, too
        value = weights["head-int8"][number]
        assert torch.equal(value, quantize(value))
    assert torch.equal(weights["head-smooth"][0], models["head-smooth"].weight)
    assert torch.equal(binarize(models["head-binary"].weight), weights["head-binary"][0])


@EACH
def test_a_head_learns_what_separates_two_classes(name):
    x = torch.randn(256, 384, generator=torch.Generator().manual_seed(0))
    y = (x[:, 0] + x[:, 1] > 0).long()
    x = torch.nn.functional.normalize(x + 0.3 * (2.0 * y[:, None] - 1.0), dim=1)
    task = tasks.find(name)
    model = build(task.model, 0)
    optimizer = PolyStep(model, task.settings(20), seed=0)
    batches = [(x[:128], y[:128])]
    valid = Validation([(x[128:], y[128:])], task.metric)
    found = fit(model, batches, valid, loss_fn=task.loss_fn, optimizer=optimizer, steps=20)
    assert found.best.value > 0.9
