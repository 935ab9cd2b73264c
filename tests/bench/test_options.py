from dataclasses import replace

import pytest

from hardstep import presets, tasks
from hardstep.bench.options import (
    NUMBERS,
    PAPER,
    POLYTOPES,
    SOLVERS,
    SUBSPACES,
    WORDS,
    make_settings,
)
from hardstep.errors import ConfigError
from hardstep.geometry import Orthoplex, Simplex
from hardstep.nn import build
from hardstep.optim import FullDecay, Momentum, PlanReuse, PolyStep, WeightMomentum
from hardstep.optim.paper_presets import theory_mode
from hardstep.schedules import Length, value_at
from hardstep.subspaces import LayerWise, RowWise

TASK = tasks.find("snn", "digits")


def made(options, steps=100, task=TASK):
    return make_settings(task, steps, options, lambda: 200)


def test_without_options_the_tasks_own_settings_are_used():
    assert made({}) == TASK.settings(100)


@pytest.mark.parametrize(
    ("options", "at", "expected"),
    [
        ({"step_radius": 0.5}, 0, 0.5),
        ({"step_radius": 0.5}, 100, 0.015),
        ({"step_radius": 0.5, "step_radius_end": 0.1}, 100, 0.1),
        ({"step_radius": 0.5, "step_radius_end": 0.5}, 100, 0.5),
    ],
)
def test_a_step_radius_is_a_length_that_is_annealed(options, at, expected):
    radius = made(options).step_radius
    assert isinstance(radius, Length)
    value = radius.value(at) if callable(radius.value) else radius.value
    assert value == pytest.approx(expected)


@pytest.mark.parametrize("preset", ["task", "paper"])
@pytest.mark.parametrize("name", ["temperature", "step_radius", "probe_radius"])
def test_an_end_alone_is_reached_from_where_the_settings_begin(name, preset):
    usual, found = made({"preset": preset}), made({"preset": preset, f"{name}_end": 0.02})

    def at(settings, step):
        temperature = value_at(settings.temperature, step)
        radius = getattr(settings, name)
        return temperature if name == "temperature" else radius.at(step, temperature)

    assert at(found, 0) == pytest.approx(at(usual, 0))
    assert at(found, 100) == pytest.approx(0.02)
    assert at(found, 50) == pytest.approx((at(usual, 0) + 0.02) / 2)


def test_numbers_reach_their_settings():
    found = made({"probe_radius": 3.0, "temperature": 0.5, "temperature_end": 0.1,
                  "num_probes": 2, "particle_dim": 4, "rank": 2, "redraw": 5})  # fmt: skip
    assert found.probe_radius == Length(3.0)
    assert (found.temperature(0), found.temperature(100)) == pytest.approx((0.5, 0.1))
    assert (found.num_probes, found.polytope.dim) == (2, 4)
    assert (found.subspace.rank, found.subspace.redraw) == (2, 5)
    assert made({"redraw": 0}).subspace.redraw is None


def test_theory_mode_is_of_the_papers_settings_and_its_decay_can_be_left_out():
    paper, theory = made({"preset": "paper"}), made({"preset": "theory"})
    assert theory == theory_mode(paper)
    assert theory.subspace == paper.subspace == LayerWise(4)
    flat, falling = made({"preset": "theory", "step_decay": 0}), {"step_decay": 0.6}
    lengths = [settings.step_radius.at(9, 0.5) for settings in (theory, flat)]
    assert lengths == pytest.approx([10**-0.6, 1.0])
    assert made({"preset": "paper"} | falling).step_radius.at(9, 0.5) == pytest.approx(10**-0.6)
    assert made({"step_radius": 3.0} | falling).step_radius.at(0, 0.5) == 3.0
    with pytest.raises(ConfigError, match="both say how steps shrink"):
        made({"step_radius_end": 0.1} | falling)


def test_a_share_of_the_units_means_turns():
    assert (made({"share": 0.2}).subspace.share, made({"share": 0.2}).subspace.redraw) == (0.2, 1)
    assert made({"share": 0.2, "redraw": 4}).subspace.redraw == 4
    assert made({"share": 1}).subspace == made({}).subspace


def test_the_frugal_preset_is_changed_like_any_other():
    found = made({"preset": "frugal", "share": 0.3, "particle_dim": 6})
    assert found == presets.frugal(100, share=0.3).changed(polytope=Simplex(6))
    assert made({"preset": "frugal", "share": 1.0}).subspace.share == 1


def test_the_sketch_preset_has_as_many_directions_as_a_particle_has_dimensions():
    found = made({"preset": "sketch", "particle_dim": 6, "rank": 3})
    assert found == presets.sketch(100, dim=6, rank=3)
    assert made({"preset": "sketch", "subspace": "row-wise"}).subspace == RowWise(rank=1)


def test_an_option_that_a_subspace_does_not_have_is_refused():
    with pytest.raises(ConfigError, match="no option of the subspace LayerWise is called 'share'"):
        made({"subspace": "layer-wise", "share": 0.5})


def test_rules_are_added_and_replaced():
    assert made({"momentum": 0.5, "reuse": 3}).rules == (PlanReuse(3, ema=0.7), Momentum(0.5))
    mlp = tasks.find("mlp", "digits")
    paper = made({"preset": "paper"}, task=mlp)
    assert PlanReuse(3, ema=0.7) in paper.rules
    assert made({"preset": "paper", "reuse": 1}, task=mlp).rules == ()
    assert made({"preset": "paper"}) == PAPER["snn"](100)


def test_a_decay_is_annealed_and_comes_after_momentum():
    added, decay = made({"decay": 0.01, "weight_momentum": 0.8}).rules
    assert added == WeightMomentum(0.8)
    assert (decay.rate(0), decay.rate(100)) == pytest.approx((0.01, 0.0003))
    decayed = replace(TASK, settings=lambda steps: TASK.settings(steps).changed(rules=(decay,)))
    assert made({"weight_momentum": 0.8}, task=decayed).rules == (added, decay)
    assert made({"decay": 0}, task=decayed).rules == ()
    assert isinstance(decay, FullDecay)


@pytest.mark.parametrize("name", [*SOLVERS, *POLYTOPES, *SUBSPACES])
def test_every_word_gives_an_optimizer_that_steps(name):
    kind = next(k for k, known in (("solver", SOLVERS), ("polytope", POLYTOPES),
                                   ("subspace", SUBSPACES)) if name in known)  # fmt: skip
    task = tasks.find("mlp", "digits")
    model = build(task.model, 0)
    chosen = make_settings(task, 5, {kind: name, "rank": 1, "particle_dim": 2}, lambda: 50)
    batch = task.data(0).train
    optimizer = PolyStep(model, chosen)
    loss = optimizer.step(batch.inputs[:8], batch.labels[:8], task.loss_fn)
    assert 0 < loss < 10


def test_the_polytope_keeps_its_dimension():
    assert made({"polytope": "orthoplex"}).polytope == Orthoplex(8)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"solver": "sinkhron"}, "did you mean 'sinkhorn'"),
        ({"preset": "papr"}, "did you mean 'paper'"),
        ({"subspace": "rows"}, "no subspace is called 'rows'"),
    ],
)
def test_words_that_do_not_exist_are_refused(options, message):
    with pytest.raises(ConfigError, match=message):
        made(options)


def test_a_column_penalty_reaches_its_solver():
    assert made({"solver": "kl"}).solver.column_penalty == 1.0
    for penalty in (0, 1e-4, 10.0):
        assert made({"solver": "kl", "column_penalty": penalty}).solver.column_penalty == penalty
    with pytest.raises(ConfigError, match=r"is of solver = 'kl', got 0.1 with 'softmax'"):
        made({"column_penalty": 0.1})


def test_a_decay_that_would_turn_weights_around_is_refused_before_the_run():
    with pytest.raises(ConfigError, match=r"decay must be in \[0, 1\), got 2"):
        made({"decay": 2})


def test_a_task_the_paper_does_not_have_is_said():
    other = replace(TASK, name="mine")
    with pytest.raises(ConfigError, match="no settings for 'mine'"):
        made({"preset": "paper"}, task=other)


def test_every_option_has_one_kind():
    assert not set(NUMBERS) & set(WORDS)
