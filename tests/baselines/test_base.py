"""What every baseline must do: learn, count, report, stop, continue bit for bit."""

import io
import json
import math
from dataclasses import fields

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

import hardstep
from hardstep import EarlyStopping, Full, JsonlLog, Validation
from hardstep.baselines import AdamTwin, InSubspace, MeZo, OpenAiEs, RandomSearch, Spsa
from hardstep.data import digits
from hardstep.errors import CheckpointError, ConfigError
from hardstep.nn import SmoothLIF, SpikingMLP, build
from hardstep.optim import StepReport
from hardstep.tasks.architectures import spiking_mlp
from hardstep.training import ACCURACY, Callback, ProgressBar
from tests.baselines.small import BASELINES, COSTS, SEARCHERS, batches, net, steps, weights
from tests.optim.toys import through_disk

LEARNED = {  # steps, and the loss on all training images, at most; 2.34 before the first step
    "openai-es": (40, 2.0),
    "cma-es": (40, 2.05),
    "sep-cma-es": (50, 2.0),
    "random-search": (50, 2.05),
    "spsa": (150, 2.2),
    "mezo": (150, 2.25),
    "eggroll": (50, 1.8),
    "adam": (30, 0.7),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", BASELINES)
def test_a_baseline_lowers_the_loss_of_a_relu_network_on_the_digits(name):
    model, train = net(), digits(0).train
    num, level = LEARNED[name]
    steps(BASELINES[name](model), num)
    assert cross_entropy(model(train.inputs), train.labels).item() < level


@pytest.mark.parametrize("name", BASELINES)
def test_evaluations_are_counted_and_the_displacement_is_how_far_the_weights_moved(name):
    optimizer = BASELINES[name](model := net())
    steps(optimizer, 2)
    before = weights(model)
    (loss,) = steps(optimizer, 3, first=2)
    assert optimizer.evaluations_per_step == COSTS[name]
    assert (optimizer.steps, optimizer.evaluations) == (3, 3 * COSTS[name])
    report = optimizer.report
    assert isinstance(report, StepReport)
    assert (report.step, report.loss, report.evaluations) == (2, loss, COSTS[name])
    assert report.seconds > 0
    moved = float((weights(model) - before).double().norm())
    assert report.displacement == pytest.approx(moved, rel=1e-3, abs=1e-6)


@pytest.mark.parametrize("name", SEARCHERS)
def test_every_evaluation_is_one_forward_pass(name):
    seen = []

    class Seeing(nn.Linear):
        def forward(self, inputs):
            seen.append(1)
            return super().forward(inputs) + float(inputs.sum())  # leaves torch: one at a time

    optimizer = SEARCHERS[name](build(lambda: Seeing(3, 2), 0), evaluator=hardstep.OneByOne())
    optimizer.step(torch.ones(4, 3), torch.zeros(4).long(), cross_entropy)
    assert len(seen) == optimizer.evaluations == COSTS[name]


@pytest.mark.parametrize("name", BASELINES)
def test_a_saved_run_continues_bit_for_bit(name):
    whole = steps(BASELINES[name](straight := net()), 8)
    first = BASELINES[name](model := net())
    steps(first, 5)
    state, kept = first.state_dict(), through_disk(model.state_dict())
    steps(first, 7, first=5)  # must not reach into the saved state
    model = net(seed=7)
    model.load_state_dict(kept)
    second = BASELINES[name](model)
    second.load_state_dict(through_disk(state))
    assert steps(second, 8, first=5) == whole[5:]
    assert torch.equal(weights(model), weights(straight))
    assert (second.steps, second.evaluations) == (8, 8 * COSTS[name])


@pytest.mark.parametrize("name", BASELINES)
def test_a_seed_fixes_the_run_and_the_global_generator_is_left_alone(name):
    models = [net() for _ in range(3)]
    with torch.random.fork_rng(devices=[]):
        for model, seed in zip(models, (0, 0, 1), strict=True):
            state = torch.get_rng_state()
            steps(BASELINES[name](model, seed=seed), 2)
            assert torch.equal(torch.get_rng_state(), state)
            torch.rand(1)
    assert torch.equal(weights(models[0]), weights(models[1]))
    if name != "adam":  # without dropout there is nothing to draw
        assert not torch.equal(weights(models[0]), weights(models[2]))


def fitted(model, optimizer, every=2, **options):
    valid = digits(0).valid
    validation = Validation([(valid.inputs, valid.labels)], ACCURACY, every=every)
    return hardstep.fit(model, batches(), validation, optimizer=optimizer, **options)


@pytest.mark.parametrize("name", BASELINES)
def test_fit_runs_a_baseline_with_validation_checkpoint_log_and_resume(name, tmp_path):
    def run(model, folder, **options):
        return fitted(model, BASELINES[name](model), checkpoint=tmp_path / folder, **options)

    log = tmp_path / "log.jsonl"
    callbacks = [JsonlLog(log), ProgressBar(io.StringIO())]
    result = run(straight := net(), "a.pt", steps=6, callbacks=callbacks)
    assert (result.steps, result.evaluations) == (6, 6 * COSTS[name])
    assert [score.step for score in result.history] == [2, 4, 6]
    rows = [json.loads(line) for line in log.read_text().splitlines()]
    logged = [row for row in rows if row["event"] == "step"]
    assert len(logged) == 6
    assert {f.name for f in fields(StepReport)} <= logged[0].keys()
    assert logged[-1]["total_evaluations"] == result.evaluations
    run(model := net(), "b.pt", steps=4)
    again = run(model, "b.pt", steps=6, resume=True)
    scores = [[(s.step, s.value) for s in run.history] for run in (result, again)]
    assert scores[0] == scores[1]
    assert torch.equal(weights(model), weights(straight))


def test_early_stopping_ends_a_baseline_as_it_ends_polystep():
    optimizer = RandomSearch(model := net(), sigma=1e-9, population=1)  # never improves visibly
    result = fitted(model, optimizer, every=1, steps=20, callbacks=[EarlyStopping(patience=2)])
    assert result.steps == 3
    assert "no improvement in 2" in result.stopped


def test_a_start_that_sees_nothing_is_reported():
    class Silent(nn.Linear):
        def forward(self, inputs):
            return (super().forward(inputs) > 1e9).float()

    class Said(Callback):
        text = ""

        def on_message(self, text):
            self.text += text

    model, said = build(lambda: Silent(64, 10), 0), Said()
    hardstep.fit(model, batches(), optimizer=MeZo(model), steps=1, callbacks=[said])
    assert "Dead start" in said.text


@pytest.mark.parametrize("name", SEARCHERS)
def test_losses_that_are_not_finite_are_ranked_last(name):
    """A loss that is NaN on one side of the start: the step stays on the other."""
    start = torch.full((6,), 0.05)
    tensors = {"x": start.clone()}
    optimizer = SEARCHERS[name](tensors, **({} if name == "eggroll" else {"subspace": Full()}))

    def function(stacked):
        x = stacked["x"]
        return torch.where(x.sum(dim=1) > start.sum(), math.nan, -x.sum(dim=1))

    seen = 0
    for _ in range(5):
        optimizer.step(batched=function)
        seen += optimizer.report.nonfinite
    assert seen > 0
    assert tensors["x"].isfinite().all()
    before = tensors["x"].clone()
    loss = optimizer.step(batched=lambda stacked: torch.full((len(stacked["x"]),), math.nan))
    assert math.isnan(loss)
    assert optimizer.report.nonfinite == COSTS[name]
    assert tensors["x"].isfinite().all()
    if name in ("random-search", "spsa", "mezo", "eggroll"):
        assert torch.equal(tensors["x"], before)


@pytest.mark.parametrize("name", SEARCHERS)
def test_a_closure_and_a_function_of_stacked_tensors_do_as_well_as_a_batch(name):
    x, y = batches().batch(0, 0)
    models = [net(), net(), net()]
    by_batch, by_closure, by_function = (SEARCHERS[name](model) for model in models)
    expected = by_batch.step(x, y, cross_entropy)
    assert by_closure.step(lambda: cross_entropy(models[1](x), y)) == pytest.approx(expected, 1e-5)

    def function(stacked):
        rows = [{key: value[i] for key, value in stacked.items()} for i in range(COSTS[name])]
        return [float(cross_entropy(torch.func.functional_call(models[2], r, x), y)) for r in rows]

    assert by_function.step(batched=function) == pytest.approx(expected, 1e-5)
    assert torch.allclose(weights(models[0]), weights(models[1]), atol=1e-4)
    assert torch.allclose(weights(models[0]), weights(models[2]), atol=1e-4)


@pytest.mark.parametrize("name", ["spsa", "eggroll", "openai-es"])
def test_another_configuration_is_refused(name):
    state = SEARCHERS[name](net()).state_dict()
    with pytest.raises(CheckpointError, match="seed 0, this optimizer has 1"):
        SEARCHERS[name](net(), seed=1).load_state_dict(state)
    for other in (Spsa(net(), a=0.123), SEARCHERS[name](nn.Linear(3, 2))):
        with pytest.raises(CheckpointError, match="settings"):
            other.load_state_dict(state)


def test_a_twin_of_another_slope_is_refused():
    model = build(lambda: spiking_mlp(64, 8, 10), 0)
    twins = [SpikingMLP((64, 8, 10), lif=SmoothLIF(slope=slope)) for slope in (2.0, 5.0)]
    state = AdamTwin(model, twins[0]).state_dict()
    AdamTwin(model, twins[0]).load_state_dict(state)
    with pytest.raises(CheckpointError, match=r"slope=2.0(.|\n)*slope=5.0"):
        AdamTwin(model, twins[1]).load_state_dict(state)


def test_a_replaced_parameter_and_the_theorem_are_refused():
    model = net()
    optimizer = InSubspace(model, OpenAiEs)
    model[0].bias = nn.Parameter(torch.zeros(16))
    with pytest.raises(ConfigError, match="'0.bias' was replaced"):
        steps(optimizer, 1)
    with pytest.raises(ConfigError, match="leave CoverageLog out"):
        optimizer.coverage()


@pytest.mark.parametrize("name", BASELINES)
def test_a_state_that_lacks_parts_or_holds_others_is_one_sentence(name):
    state, other = BASELINES[name](net()).state_dict(), BASELINES[name](net())
    odd = [{"step": math.nan}, {"evaluations": -1}, {"seed": torch.zeros(2)}, {"memory": 3}]
    for changes in odd:
        with pytest.raises(CheckpointError, match=r"; (load what|build it)"):
            other.load_state_dict(state | changes)
    with pytest.raises(CheckpointError, match="the memory in the state is not one of"):
        other.load_state_dict({key: part for key, part in state.items() if key != "memory"})
