"""The presets against the table of the paper's settings, number by number."""

import math
from dataclasses import dataclass

import pytest
import torch
from torch import nn

from hardstep.errors import ConfigError
from hardstep.geometry import Biased, Haar, Jitter, Mollifier, Orthoplex, Simplex
from hardstep.optim import Absorb, Momentum, PlanReuse, PolyStep, presets
from hardstep.schedules import length_at, temperature_at, value_at
from hardstep.solvers import RowSoftmax
from hardstep.subspaces import Full, LayerWise, RowWise

STEPS = 3180


@dataclass(frozen=True)
class Row:
    """One line of the table: pairs are (first step, end of the run), radii are lengths."""

    temperature: tuple[float, float]
    step_length: tuple[float, float]
    probe_length: tuple[float, float]
    subspace: object
    rotation: object = Haar()
    momentum: tuple[float, float] | None = None
    reuse: int | None = None
    absorb: int | None = None
    particle_dim: int = 8


SUBSPACE_RUNS = {
    "snn": Row((0.5, 0.5), (1.0, 1.0), (0.5, 0.5), LayerWise(4), Biased(), absorb=20),
    "mnist": Row((10, 0.1), (5, 1), (10, 2), LayerWise(8), reuse=3),
    "int8": Row((5, 0.3), (32, 8), (2, 0.5), LayerWise(8), momentum=(0.3, 0.5)),
    "argmax": Row((5, 0.3), (32, 8), (2, 0.5), LayerWise(8)),
    "staircase": Row((5, 1), (64, 32), (2, 1), LayerWise(4)),
    "moe": Row((0.5, 0.5), (12, 4), (0.5, 0.5), LayerWise(4), Biased()),
    "sst2": Row((0.1, 0.1), (0.2, 0.2), (0.1, 0.1), LayerWise(64)),
    "etth1": Row((10, 0.1), (5, 1), (10, 2), LayerWise(8), momentum=(0.5, 0.95), reuse=3),
}
RL = Row((1.0, 0.1), (0.5, 0.05), (1.0, 0.1), Full(), particle_dim=2)  # multiples of ε


def maxsat_row(num_variables, reuse):
    scale = math.sqrt(num_variables / 1e5)
    return Row(
        (5, 0.5),
        (3000 * scale, 600 * scale),
        (100 * scale, 20 * scale),
        Full(),
        momentum=(0.5, 0.95),
        reuse=reuse,
        particle_dim=2,
    )


CASES = [
    *((getattr(presets, name)(STEPS), STEPS, row) for name, row in SUBSPACE_RUNS.items()),
    (presets.rl(), 200, RL),
    (presets.maxsat(1000, 100), 1000, maxsat_row(100, reuse=3)),
    (presets.maxsat(1000, 100_000), 1000, maxsat_row(100_000, reuse=3)),
    (presets.maxsat(1000, 1_000_000), 1000, maxsat_row(1_000_000, reuse=None)),
]
NAMES = [*SUBSPACE_RUNS, "rl", "maxsat 100", "maxsat 100k", "maxsat 1M"]
EVERY = pytest.mark.parametrize(("settings", "steps", "row"), CASES, ids=NAMES)


def lengths(settings, step):
    temperature = temperature_at(settings.temperature, step)
    return (
        temperature,
        length_at("step_radius", settings.step_radius, step, temperature),
        length_at("probe_radius", settings.probe_radius, step, temperature),
    )


@EVERY
@pytest.mark.parametrize("end", [0, 1], ids=["first", "last"])
def test_temperature_and_lengths_are_those_of_the_table(settings, steps, row, end):
    expected = (row.temperature[end], row.step_length[end], row.probe_length[end])
    assert lengths(settings, steps * end) == pytest.approx(expected, rel=1e-12)


@EVERY
def test_a_run_reaches_the_last_values_with_its_last_step_and_not_before(settings, steps, row):
    nearly, middle = lengths(settings, steps - 1), lengths(settings, steps // 2)
    ends = (row.temperature, row.step_length, row.probe_length)
    assert nearly == pytest.approx([last for _, last in ends], rel=1e-3)
    # A cosine is half way in the middle of its run.
    assert middle == pytest.approx([(first + last) / 2 for first, last in ends], rel=0.01)


@EVERY
def test_subspace_directions_and_solver_are_those_of_the_table(settings, steps, row):
    assert settings.subspace == row.subspace
    assert settings.polytope == Simplex(row.particle_dim)
    assert settings.rotation == row.rotation
    assert settings.solver == RowSoftmax()
    assert settings.num_probes == 1
    assert settings.jitter == Jitter()


@EVERY
def test_rules_are_those_of_the_table(settings, steps, row):
    # Plan reuse comes first: its average is of barycentres, not of velocities.
    given = {PlanReuse: row.reuse, Momentum: row.momentum, Absorb: row.absorb}
    assert [type(rule) for rule in settings.rules] == [kind for kind in given if given[kind]]
    for rule in settings.rules:
        if isinstance(rule, PlanReuse):
            assert (rule.every, rule.ema, rule.limit) == (row.reuse, 0.7, 1.5)
        if isinstance(rule, Momentum):
            betas = [value_at(rule.beta, at) for at in (0, steps // 2, steps)]
            start, end = row.momentum
            assert betas == pytest.approx([start, (start + end) / 2, end], rel=1e-12)
        if isinstance(rule, Absorb):
            assert rule.every == row.absorb


def test_the_general_preset_shrinks_its_steps_and_leaves_the_rest_flat():
    settings = presets.general(STEPS, rank=3)
    assert settings.subspace == RowWise(3)
    assert settings.rules == ()
    temperature, first, probe = lengths(settings, 0)
    sizes = [lengths(settings, step)[1] for step in range(0, STEPS + 1, 60)]
    assert sizes[0] == first
    assert all(later < earlier for earlier, later in zip(sizes, sizes[1:], strict=False))
    assert 0 < sizes[-1] <= first / 10
    assert lengths(settings, STEPS) == pytest.approx((temperature, sizes[-1], probe))


def test_theory_mode_is_what_the_theorem_describes():
    settings = presets.theory(temperature=0.5, step_radius=2.0, probe_radius=1.0)
    assert settings == presets.theory()
    for step in (0, 9, 99, 3179):
        expected = (0.5, 2.0 * (step + 1) ** -0.6 * 0.5, 0.5)
        assert lengths(settings, step) == pytest.approx(expected, rel=1e-12)
    assert settings.polytope == Orthoplex(8)
    assert settings.rotation == Haar()
    assert settings.jitter == Jitter(probe=Mollifier(0.05), step=Mollifier(0.05))
    assert settings.rules == ()
    assert settings.solver == RowSoftmax()
    bound = PolyStep(nn.Linear(20, 12), settings).subspace
    assert bound.orthonormal


def test_steps_in_theory_mode_have_a_divergent_sum_and_convergent_squares():
    radius = presets.theory().step_radius.value
    sizes = torch.tensor([radius(step) for step in range(100_000)], dtype=torch.float64)
    # Σ t^−0.6 grows like t^0.4 / 0.4, Σ t^−1.2 stays below ζ(1.2) = 5.59.
    assert sizes.sum() == pytest.approx(2 * 100_000**0.4 / 0.4, rel=0.02)
    assert sizes.square().sum() < 4 * 5.592


def test_lengths_of_maxsat_grow_with_the_root_of_the_problem():
    small, large = (lengths(presets.maxsat(10, n), 0) for n in (1_000, 100_000))
    assert [b / a for a, b in zip(small, large, strict=True)] == pytest.approx([1, 10, 10])


def test_the_radius_of_the_printed_maxsat_runs_is_flat_in_fact():
    """3000 → 2999.9 after a thousand steps, as a note of the paper says."""
    settings = presets.maxsat_realized(100_000, 427_000)
    first, last = lengths(settings, 0), lengths(settings, 1000)
    assert first == pytest.approx((5 * 427_000, 3000, 100))
    assert last[1] == pytest.approx(2999.9, abs=0.005)
    assert last[2] == pytest.approx(96.95, abs=0.01)  # a cosine of 8,000 steps
    assert lengths(settings, 450)[0] == pytest.approx(0.5 * 427_000)
    momentum, reuse = settings.rules
    assert [momentum.beta(step) for step in (0, 49, 1000)] == pytest.approx([0.5, 0.95, 0.95])
    assert reuse == PlanReuse(3, ema=0.7)
    million = presets.maxsat_realized(1_000_000, 4_270_000)
    assert lengths(million, 450)[0] == pytest.approx(0.5)
    assert [type(rule) for rule in million.rules] == [Momentum]


def net():
    return nn.Sequential(nn.Linear(6, 9), nn.Tanh(), nn.Linear(9, 3))


STEPLESS = ("theory", "maxsat_realized")
PLAIN = ("general", "wide", "warm", "frugal", "sketch")
EVERYTHING = {name: case[0] for name, case in zip(NAMES, CASES, strict=True)}
EVERYTHING |= {name: getattr(presets, name)(STEPS) for name in PLAIN}
EVERYTHING["theory"] = presets.theory()


@pytest.mark.parametrize("settings", EVERYTHING.values(), ids=EVERYTHING)
def test_a_small_model_takes_steps_with_every_preset(settings):
    opt = PolyStep(model := net(), settings, seed=1)
    before = nn.utils.parameters_to_vector(model.parameters()).detach().clone()
    generator = torch.Generator().manual_seed(0)
    x, y = torch.randn(8, 6, generator=generator), torch.randint(0, 3, (8,), generator=generator)
    for _ in range(3):
        assert math.isfinite(opt.step(x, y, nn.functional.cross_entropy))
    after = nn.utils.parameters_to_vector(model.parameters()).detach()
    assert after.isfinite().all()
    assert (after - before).norm() > 1e-3
    solves = 1 if any(isinstance(rule, PlanReuse) for rule in settings.rules) else 3
    assert opt.evaluations >= solves * opt.evaluations_per_step


def test_the_papers_presets_search_the_papers_subspace():
    opt = PolyStep(net(), presets.snn(STEPS))
    # (9 + 6)·4 and (3 + 9)·3, capped at 54 and 27; biases 9 and 3: 7 + 2 + 4 + 1 particles of 8.
    assert opt.num_particles == 14
    assert opt.evaluations_per_step == 14 * 9
    assert presets.theory().subspace == LayerWise(4)


@pytest.mark.parametrize("name", [n for n in presets.__all__ if n not in STEPLESS])
@pytest.mark.parametrize("steps", ["100", 99.5, 0])
def test_a_preset_refuses_a_number_of_steps_by_its_own_name(name, steps):
    more = {"num_variables": 9} if name == "maxsat" else {}
    with pytest.raises(
        ConfigError, match=f"^presets.{name}: steps must be a whole .*got {steps!r}"
    ):
        getattr(presets, name)(steps, **more)


@pytest.mark.parametrize(
    ("name", "options", "sentence"),
    [
        ("general", {"step_radius": "1"}, "general: step_radius must be a number > 0 .*got '1'"),
        ("general", {"probe_radius": -1.0}, "general: probe_radius must be a number > 0 .*got -1"),
        ("warm", {"decay": "a"}, "warm: decay must be a number >= 0 and finite, got 'a'"),
        ("frugal", {"share": "a"}, r"share must be a number in \(0, 1\], got 'a'"),
        ("maxsat", {"num_variables": "a"}, "maxsat: num_variables must be a whole number >= 1"),
        ("sketch", {"dim": 1.5}, "sketch: dim must be a whole number >= 1, got 1.5"),
    ],
)
def test_a_preset_refuses_other_arguments_too(name, options, sentence):
    with pytest.raises(ConfigError, match=sentence):
        getattr(presets, name)(10, **options)


@pytest.mark.parametrize(
    "name", [n for n in (*SUBSPACE_RUNS, "general", "warm", "frugal", "sketch", "rl") if n != "snn"]
)
def test_a_run_of_no_steps_is_refused(name):
    with pytest.raises(ConfigError, match="steps must be .* 1, got 0"):
        getattr(presets, name)(0)
