import json

import matplotlib.image
import pytest
import torch
from torch import nn

from hardstep import tasks
from hardstep.bench.axes import Budget
from hardstep.bench.methods import Blueprint
from hardstep.bench.records import find_fault
from hardstep.bench.runs import Job, run_job
from hardstep.cli.evaluate import run_evaluate
from hardstep.cli.options import EvaluateOptions, TrainOptions
from hardstep.cli.train import run_train
from hardstep.data import waves
from hardstep.errors import ConfigError
from hardstep.nn import build
from hardstep.optim import PolyStep
from hardstep.subspaces import Full
from hardstep.tasks.forecasts import FORECASTS, Forecaster, persistence

ETTH1 = [name for name in FORECASTS if name.startswith("etth1")]


@pytest.mark.parametrize("name", ETTH1)
def test_networks_have_the_papers_parameters_and_data_are_not_read_to_say_so(name, monkeypatch):
    monkeypatch.setenv("HARDSTEP_DATA", "/nowhere")
    task = tasks.find(name)
    model = build(task.model, 0)
    assert sum(p.numel() for p in model.parameters()) == 23_392
    assert task.data_name == "etth1"
    twin = build(task.twin, 0)
    twin.load_state_dict(model.state_dict())
    window = torch.randn(2, 96, generator=torch.Generator().manual_seed(0))
    assert model(window).shape == twin(window).shape == (2, 96)


def test_a_relative_forecast_moves_with_the_level_of_the_window():
    model = build(lambda: Forecaster(4, 3, relative=True), 0)
    window = torch.randn(5, 8, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(model(window + 7.0), model(window) + 7.0, rtol=0, atol=1e-5)
    nn.init.zeros_(model.head.weight)
    nn.init.zeros_(model.head.bias)
    torch.testing.assert_close(model(window), persistence(window, 3))


def test_training_on_the_series_made_here_beats_persistence(tmp_path, capsys):
    out = tmp_path / "run"
    assert run_train(TrainOptions("waves", out=out, json=True, steps=12)) == 0
    result = json.loads(capsys.readouterr().out)
    test = waves(0).open_test()
    errors = test.labels - persistence(test.inputs, 24)
    assert result["test_mse"] < float(errors.square().mean()) / 1.5
    assert result["test_mae"] < float(errors.abs().mean())
    assert matplotlib.image.imread(out / "picture.png").std() > 0.05
    assert run_evaluate(EvaluateOptions(out, json=True)) == 0
    again = json.loads(capsys.readouterr().out)
    assert [again[k] for k in ("test_mse", "test_mae")] == [
        result[k] for k in ("test_mse", "test_mae")
    ]
    assert run_evaluate(EvaluateOptions(out)) == 0
    assert "test mae" in capsys.readouterr().out


def test_records_have_the_second_metric():
    record = run_job(Job("waves", "waves", "adam", 3, Budget("steps", 2)))
    assert 0 < record["test_mae"] < 2
    assert record["metric"] == {"name": "mse", "higher_is_better": False, "percent": False}
    assert not find_fault(record | {"schema": 1}) or "schema" in find_fault(record | {"schema": 1})


def test_baselines_search_all_weights_where_ours_take_turns():
    task = FORECASTS["etth1"]
    assert Blueprint(task, build(task.model, 0), 10, 0).subspace == Full()


@pytest.mark.parametrize("name", ETTH1)
def test_a_step_probes_the_head_whole_and_a_few_units_of_the_lstm(name):
    task = tasks.find(name)
    optimizer = PolyStep(build(task.model, 0), task.settings(10), seed=0)
    per_block = {block.names[0]: block.size for block in optimizer.subspace.blocks}
    assert per_block["head.weight"] == 96 * 65
    assert per_block["lstm.weight_hh_l0"] < 100


def test_other_data_are_refused():
    with pytest.raises(
        ConfigError, match=r"etth1 brings its own data \('etth1'\), so data 'mnist'"
    ):
        tasks.find("etth1", "mnist")
    assert tasks.find("etth1", "etth1").name == "etth1"


def test_a_name_that_is_nearly_one_is_suggested():
    with pytest.raises(ConfigError, match="did you mean 'etth1"):
        tasks.find("etth")
