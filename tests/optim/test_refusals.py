"""Everything `PolyStep` refuses, and the sentence it does so with."""

import inspect
import math
from dataclasses import fields
from functools import partial
from typing import NamedTuple

import mypy.api
import numpy as np
import pytest
import torch
from torch import nn

from hardstep.errors import ConfigError, ObjectiveError
from hardstep.evaluation import OneByOne
from hardstep.optim import AskTell, Momentum, PlanReuse, PolyStep, Settings, minimize
from hardstep.schedules import Length, Linear
from hardstep.subspaces import Full, RowWise

from .toys import Net, Scripted, batch, constant_loss, mse, parameters, tiny


def frozen():
    return Net().requires_grad_(requires_grad=False)


SETTINGS = {
    "unknown setting 'temprature'; did you mean 'temperature'": {"temprature": 1.0},
    "temperature must be a number > 0 and finite, got 0": {"temperature": 0.0},
    "temperature must be a number > 0 and finite, got -2": {"temperature": -2.0},
    "temperature must be a number > 0 and finite, got nan": {"temperature": math.nan},
    "temperature must be a number or a schedule, got 'hot'": {"temperature": "hot"},
    r"step_radius needs a unit: write Length\(5.0\) for a length or Times": {"step_radius": 5.0},
    r"probe_radius needs a unit: write Length\(1\)": {"probe_radius": 1},
    r"step_radius must be > 0 and have a unit, such as Length\(0.1\), got -0.1$": {
        "step_radius": -0.1
    },
    r"probe_radius must be > 0 and have a unit, .* got 'far'": {"probe_radius": "far"},
    r"step_radius must be > 0 .* got a Tensor of shape \(99,\)$": {"step_radius": torch.ones(99)},
    r"polytope must be .* got a Tensor of shape \(99,\)$": {"polytope": torch.ones(99)},
    "probe_radius must be a number > 0 and finite, got 0": {"probe_radius": Length(0.0)},
    "num_probes must be a whole number >= 1, got 0": {"num_probes": 0},
    "num_probes must be a whole number >= 1, got 1.5": {"num_probes": 1.5},
    r"subspace must be an object such as RowWise\(rank=8\), got 8": {"subspace": 8},
    r"subspace must be an object such as RowWise\(rank=8\), got <class": {"subspace": RowWise},
    r"polytope must be an object such as Simplex\(8\), got 'simplex'": {"polytope": "simplex"},
    r"rotation must be an object such as Haar\(\), got 0": {"rotation": 0},
    r"solver must be an object such as RowSoftmax\(\), got 'softmax'": {"solver": "softmax"},
    r"jitter must be an object such as Jitter\(probe=Mollifier": {"jitter": 0.05},
    r"evaluator must be an object such as Incremental\(\), got 'batched'": {"evaluator": "batched"},
    r"object such as Incremental\(\), got <class .*OneByOne": {"evaluator": OneByOne},
    "nonfinite must be 'worst' or 'raise', got 'ignore'": {"nonfinite": "ignore"},
    "rules must hold rules such as Momentum.*, got 0.9": {"rules": (0.9,)},
    r"rules must be a tuple such as \(Momentum\(0.9\),\), got Momentum": {"rules": Momentum(0.9)},
}


@pytest.mark.parametrize("sentence", SETTINGS)
def test_bad_settings_are_refused_with_a_sentence(sentence):
    with pytest.raises(ConfigError, match=sentence):
        PolyStep(Net(), **SETTINGS[sentence])


SOURCES = {
    "Net has no trainable parameters; set requires_grad=True": frozen,
    "needs non-empty floating-point tensors, got {'a': 'int64": lambda: {"a": torch.arange(3)},
    "needs a model or a dict of named tensors, got a generator": lambda: Net().parameters(),
    "needs a model or a dict of named tensors, got a Tensor": lambda: torch.zeros(3),
}


@pytest.mark.parametrize("sentence", SOURCES)
def test_a_source_without_anything_to_search_is_refused(sentence):
    with pytest.raises(ConfigError, match=sentence):
        PolyStep(SOURCES[sentence]())


def test_settings_and_a_rank_of_another_kind_are_refused():
    with pytest.raises(ConfigError, match=r"settings must be Settings or a preset, got RowWise"):
        PolyStep(Net(), RowWise(rank=8))
    with pytest.raises(ConfigError, match="RowWise: rank must be a whole number .*got 2.5"):
        RowWise(rank=2.5)


def test_every_setting_is_an_argument_with_its_type():
    for function in (PolyStep, Settings.changed):
        given = inspect.signature(function).parameters.values()
        named = [p.name for p in given if p.kind is p.KEYWORD_ONLY]
        assert named[:11] == [field.name for field in fields(Settings)]
        assert named[11:] in ([], ["only", "evaluator", "clock", "seed"])
        annotations = {p.name: p.annotation for p in given}
        for field in fields(Settings):
            assert annotations[field.name] == field.type | None, field.name


@pytest.mark.slow
def test_type_checkers_refuse_wrong_types_and_unknown_names(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(
        "import torch\nfrom hardstep import PolyStep, Length\n"
        "model = torch.nn.Linear(2, 2)\n"
        "PolyStep(model, step_radius=Length(0.1), num_probes=2)\n"
        "PolyStep(model, step_radius=0.1)\n"
        "PolyStep(model, temprature=0.1)\n"
        "PolyStep(model).settings.changed(num_probes='two')\n"
    )
    found, _, _ = mypy.api.run([str(program), "--no-error-summary"])
    assert [line.split(":")[1] for line in found.splitlines() if ": error:" in line] == list("567")


def test_a_preset_can_be_changed_field_by_field():
    opt = PolyStep(Net(), Settings(temperature=3.0, num_probes=2), num_probes=4, subspace=Full())
    assert (opt.settings.temperature, opt.settings.num_probes) == (3.0, 4)
    with pytest.raises(ConfigError, match=r"rotation must be an object such as Haar\(\), got None"):
        Settings(rotation=None)


def test_a_scheduled_temperature_or_radius_that_reaches_zero_stops_the_run_at_that_step():
    def fails_at(sentence, **changes):
        opt = tiny(Net(), **changes)
        for i in range(2):
            opt.step(*batch(i), mse)
        with pytest.raises(ConfigError, match=sentence):
            opt.step(*batch(2), mse)
        assert opt.steps == 2

    down = Linear(1.0, 0.0, steps=2)
    fails_at("temperature must be > 0, got 0.0 at step 2", temperature=down)
    fails_at("step_radius must be a positive length, got 0.0 at step 2", step_radius=Length(down))


@pytest.mark.parametrize(
    ("loss_fn", "sentence"),
    [
        ("mse", r"loss_fn must be a function of \(output, target\) such as .*, got 'mse'"),
        (nn.MSELoss, r"got the class MSELoss; write MSELoss\(\)"),
    ],
)
def test_a_loss_function_that_is_none_is_refused(loss_fn, sentence):
    with pytest.raises(ConfigError, match=sentence):
        tiny(Net()).step(*batch(), loss_fn)


def test_a_batch_without_examples_is_refused_unless_the_loss_does_not_need_them():
    x, y = batch()
    opt = tiny(Net())
    with pytest.raises(ObjectiveError, match=r"the batch is empty, its inputs have shape \(0, 3\)"):
        opt.step(x[:0], y[:0], mse)
    assert opt.steps == 0
    opt.step(x[:0], y[:0], constant_loss)
    assert opt.steps == 1


def calls(opt):
    x, y = batch()
    wrong_order = r"\(inputs, target, loss_fn\) in this order, got \("
    tensors = r"a Tensor of shape \(6, 3\), a Tensor of shape \(6, 2\)"
    return {
        rf"{wrong_order}the function mse_loss, {tensors}\)$": lambda: opt.step(mse, x, y),
        rf"{wrong_order}a .*, the function mse_loss, a .*\)$": lambda: opt.step(x, mse, y),
        r"loss_fn must be a function .* got a Tensor of shape \(6, 2\)$": lambda: opt.step(x, y, y),
        r"loss_fn\(output\), since no target was given, got a function of \(input, target": (
            lambda: opt.step(x, None, mse)
        ),
        r"loss_fn\(output, target\), since a target was given, got a function of \(output\)": (
            lambda: opt.step(x, y, lambda output: output.sum())
        ),
        r"closure takes no argument, got a function of \(stacked\); .* as batched=": (
            lambda: opt.step(lambda stacked: stacked)
        ),
        r"batched is called with stacked tensors .* got a function of \(\); .* step\(closure\)": (
            lambda: opt.step(batched=lambda: 0.0)
        ),
        r"batched must be a function of stacked tensors .* got a Tensor of shape": (
            lambda: opt.step(batched=x)
        ),
        r"objective must be an object such as .*losses\(\), got the function mse_loss": (
            lambda: opt.step(objective=mse)
        ),
    }


@pytest.mark.parametrize("sentence", calls(None))
def test_arguments_in_each_others_places_are_refused_with_the_way_out(sentence):
    opt = tiny(Net())
    with pytest.raises(ConfigError, match=sentence) as refused:
        calls(opt)[sentence]()
    assert len(str(refused.value)) < 300
    assert opt.steps == 0


def complex_losses(opt, model):
    x, y = batch()
    return {
        "loss_fn": lambda: opt.step(x, y, lambda output, target: mse(output, target) * 1j),
        "closure": lambda: opt.step(lambda: mse(model(x), y) * 1j),
        "batched function": lambda: opt.step(batched=lambda t: t["last.bias"].sum(1) * 1j),
        "objective": lambda: opt.step(objective=Returns(torch.ones(len(everything(opt))) * 1j)),
        "minimize: f": lambda: minimize(lambda x: x[:, 0] * 1j, [1.0, 2.0], vectorized=True),
        "minimize: (f)": lambda: minimize(lambda x: x[0] * 1j, [1.0, 2.0]),
    }


def everything(opt):
    return opt.candidates(opt.propose())


@pytest.mark.parametrize("who", complex_losses(None, None))
def test_complex_losses_are_refused_wherever_they_come_from(who):
    opt = tiny(model := Net())
    sentence = rf"^{who} must return real numbers, got complex ones .* take their \.real or abs"
    with pytest.raises(ObjectiveError, match=sentence):
        complex_losses(opt, model)[who]()
    assert opt.steps == opt.evaluations == 0


@pytest.mark.parametrize("convert", [list, np.array, torch.tensor])
def test_complex_losses_are_not_told(convert):
    search = AskTell(2)
    with pytest.raises(ObjectiveError, match="^tell: losses must be real numbers, got complex"):
        search.tell(convert([1j] * len(search)))
    assert search.evaluations == 0


def objectives(opt, model):
    x, y = batch()
    unreduced = partial(mse, reduction="none")
    return {
        r"loss_fn must return one number .* got \(6, 2\).*mean\(\)": lambda: opt.step(
            x, y, unreduced
        ),
        r"closure must return one number, got shape \(6, 2\)": lambda: opt.step(
            lambda: unreduced(model(x), y)
        ),
        r"batched function must return one loss per candidate, shape \(\d+,\), got \(\)": (
            lambda: opt.step(batched=lambda t: t["last.bias"].sum())
        ),
        r"batched function must return one loss per candidate, shape \(\d+,\), got \(\d+, 2\)": (
            lambda: opt.step(batched=lambda t: t["last.bias"])
        ),
        r"objective must return \d+ losses, got \(3,\)": (
            lambda: opt.step(objective=Returns(torch.zeros(3)))
        ),
        r"objective must return \d+ losses, got 'no'": (lambda: opt.step(objective=Returns("no"))),
    }


class Returns(NamedTuple):
    answer: object

    def losses(self, candidates):
        return self.answer


@pytest.mark.parametrize("sentence", objectives(None, None))
def test_losses_of_the_wrong_shape_are_refused_and_nothing_moves(sentence):
    opt = tiny(model := Net())
    with pytest.raises(ObjectiveError, match=sentence):
        objectives(opt, model)[sentence]()
    assert opt.steps == opt.evaluations == 0
    assert torch.equal(parameters(model), parameters(Net()))


def test_exactly_one_objective_must_be_given():
    x, y = batch()
    opt = tiny(Net())
    given = {"objective": Scripted()}
    for count, positional, named in (
        (0, (), {}),
        (2, (x, y, mse), given),
        (2, (lambda: 0.0,), {"batched": lambda t: t}),
        (2, (), {"target": y, "loss_fn": mse} | given),
        (3, (x,), {"batched": lambda t: t} | given),
    ):
        with pytest.raises(ConfigError, match=f"exactly one of .* got {count} of them"):
            opt.step(*positional, **named)
    for positional in ((x, y), (lambda: 0.0, y), (None, y, mse)):
        with pytest.raises(ConfigError, match=r"step\(inputs, target, loss_fn\) needs"):
            opt.step(*positional)
    with pytest.raises(ConfigError, match="for plain tensors use a closure, batched= or obj"):
        tiny({"a": torch.zeros(3)}).step(x, y, mse)


def test_losses_that_do_not_fit_a_proposal_and_one_of_an_earlier_step_are_refused():
    opt = tiny(Net())
    stale, p = opt.propose(), opt.num_particles
    with pytest.raises(ObjectiveError, match=rf"shape \({p}, 3, 1\) .*, got \({p}, 3\)"):
        opt.advance(stale, torch.zeros(p, 3))
    opt.step(*batch(), mse)
    with pytest.raises(ConfigError, match=r"is for step 0, the optimizer is at 1; call pro"):
        opt.advance(stale, torch.zeros(stale.probes.shape[:3]))


def test_a_model_whose_parameters_are_others_than_at_the_start_is_refused():
    x, y = batch()

    def replace(model, name, value):
        setattr(model, name, nn.Parameter(value))

    changes = {
        "'first.bias' was .* and is None; build a new": lambda m: m.first.requires_grad_(False),
        r"'last.bias' was .*\(2,\).* and is .*\(3,\)": lambda m: replace(
            m.last, "bias", torch.zeros(3)
        ),
        r"'extra' was None and is .*\(1,\)": lambda m: replace(m, "extra", torch.zeros(1)),
        "'first.bias' was .*float64.* and is .*float32": lambda m: m.float(),
    }
    for sentence, change in changes.items():
        model = Net()
        opt = tiny(model, rules=(PlanReuse(2),))
        opt.step(x, y, mse)
        change(model)
        for _ in range(2):  # a coasting step, and one that solves, refuse alike
            with pytest.raises(ConfigError, match=sentence):
                opt.step(x, y, constant_loss)
