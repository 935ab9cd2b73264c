"""Examples run, reach what they claim, and stay as short as the documentation says."""

import importlib.util
import json
from pathlib import Path

import pytest
import torch
from torch.func import functional_call

from hardstep import Full, Length, PolyStep, Simplex, nn, tasks
from hardstep.cli.evaluate import run_evaluate
from hardstep.cli.options import EvaluateOptions
from hardstep.cli.train import TrainOptions, run_train

EXAMPLES = Path(__file__).parents[1] / "examples"


def load(name):
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_maxcut_is_short_and_cuts_most_edges():
    assert len((EXAMPLES / "maxcut.py").read_text().splitlines()) < 60
    assert load("maxcut").main(nodes=150, steps=150) > 0.70


def test_maxcut_losses_are_those_of_a_recount():
    maxcut = load("maxcut")
    upper = (torch.rand(31, 31, generator=torch.Generator().manual_seed(0)) < 0.4).float().triu(1)
    problem = maxcut.MaxCut(upper + upper.T)
    x = torch.linspace(-1, 1, 31)  # an odd number: the last particle is padded
    opt = PolyStep({"x": x}, subspace=Full(), polytope=Simplex(2), probe_radius=Length(9.0))
    candidates = opt.candidates(opt.propose())
    for number, loss in enumerate(problem.losses(candidates).tolist()):
        moved = candidates.parameters(number)["x"]
        assert loss == -float(problem.cut(torch.where(moved >= 0, 1.0, -1.0)))


def test_a_router_that_is_searched_is_better_than_the_one_that_was_drawn():
    assert len((EXAMPLES / "hard_router.py").read_text().splitlines()) < 65
    router = load("hard_router")
    assert router.main(epochs=2) > router.main(epochs=2, search=False) + 0.15


def test_an_unmodified_lstm_learns_with_no_settings():
    assert len((EXAMPLES / "lstm_digits.py").read_text().splitlines()) < 50
    assert load("lstm_digits").main(epochs=1) > 0.3  # guessing: 0.1 with a deviation of 0.03


def test_a_forecast_with_closed_gates_beats_persistence():
    assert len((EXAMPLES / "forecast.py").read_text().splitlines()) < 55
    found, last = load("forecast").main(epochs=2)
    assert found < last / 2


def test_a_one_bit_head_reads_digits():
    assert len((EXAMPLES / "one_bit_head.py").read_text().splitlines()) < 55
    assert load("one_bit_head").main(epochs=2) > 0.8


def trained(task, out, capsys, **options):
    """The result of `hardstep train`, after `hardstep evaluate` gave the same score again."""
    assert run_train(TrainOptions(task, out=out, json=True, **options)) == 0
    result = json.loads(capsys.readouterr().out)
    assert run_evaluate(EvaluateOptions(out / "checkpoint.pt", task=task, json=True)) == 0
    again = json.loads(capsys.readouterr().out)
    assert again["test_accuracy"] == result["test_accuracy"]
    return result


def test_a_users_task_is_short_and_learns(tmp_path, capsys):
    assert len((EXAMPLES / "own_task.py").read_text().splitlines()) < 35
    result = trained(f"{EXAMPLES / 'own_task.py'}:ferns", tmp_path, capsys, steps=3, seed=10)
    assert result["valid_accuracy"] > 0.5


@pytest.mark.parametrize(
    ("file", "name"), [("snntorch_model", "leaky"), ("spikingjelly_model", "linear")]
)
def test_an_unmodified_network_of_a_library_learns_from_forward_passes(
    file, name, tmp_path, capsys
):
    pytest.importorskip(file.removesuffix("_model"))
    address = f"{EXAMPLES / file}.py:{name}"
    result = trained(address, tmp_path, capsys, steps=4, seed=10)
    assert result["valid_accuracy"] > 0.3  # guessing among 143 images: 0.1 with a deviation of 0.03


@pytest.mark.parametrize(
    ("file", "name", "tiers"),
    [
        ("snntorch_model", "leaky", {"fused"}),
        ("snntorch_model", "convolutional", {"events", "fused"}),
        ("spikingjelly_model", "linear", {"fused"}),
        ("spikingjelly_model", "convolutional", {"events", "fused"}),
    ],
)
def test_losses_of_a_librarys_network_are_those_of_plain_forward_passes(file, name, tiers):
    pytest.importorskip(file.removesuffix("_model"))  # SpikingJelly is not installed for tests
    task = tasks.find(f"{EXAMPLES / file}.py:{name}")
    model = nn.build(task.model, 0)
    batch = task.data(0).train.select(torch.arange(task.batch_size))
    opt = PolyStep(model, task.settings(4), seed=0)
    proposal = opt.propose()
    losses = opt.evaluate(proposal, batch.inputs, batch.labels, task.loss_fn).flatten()
    candidates = opt.candidates(proposal)
    for number in range(0, len(losses), 60):
        with torch.no_grad():
            output = functional_call(model, candidates.parameters(number), batch.inputs)
        plain = task.loss_fn(output, batch.labels)
        torch.testing.assert_close(losses[number].float(), plain, rtol=1e-5, atol=1e-5)
    assert set(opt.evaluator.notes.values()) == tiers
