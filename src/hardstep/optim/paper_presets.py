"""The paper's settings, per task; `hardstep.presets` has them, too.

Where the paper schedules a value, the schedule spans the whole run, so these take the number of
steps. Radii say their unit: a multiple of a flat temperature, or a length. Networks are searched in
the paper's subspace, `LayerWise`. Row-wise these radii are too long, since a probe then moves one
unit by its whole length: `presets.snn(steps).changed(subspace=RowWise(4))` trains far worse.
"""

import inspect
import math
from collections.abc import Callable
from functools import wraps
from typing import ParamSpec

from hardstep._checks import check_count, check_not_negative, check_positive
from hardstep.geometry import Biased, Jitter, Mollifier, Orthoplex, Simplex
from hardstep.optim.rules import Absorb, Momentum, PlanReuse
from hardstep.optim.settings import Settings
from hardstep.schedules import (
    Cosine,
    Length,
    Linear,
    PowerDecay,
    TimesTemperature,
    length_at,
    temperature_at,
)
from hardstep.subspaces import Full, LayerWise

Parameters = ParamSpec("Parameters")
COUNTS = ("steps", "rank", "dim", "redraw", "num_variables", "num_clauses")
LENGTHS = ("step_radius", "probe_radius", "temperature", "unit")


def preset(make: Callable[Parameters, Settings]) -> Callable[Parameters, Settings]:
    """The same function, which refuses arguments by its own name, before schedules are made."""
    signature = inspect.signature(make)

    @wraps(make)
    def checked(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Settings:
        for name, value in signature.bind(*args, **kwargs).arguments.items():
            what = f"presets.{make.__name__}: {name}"
            if name in COUNTS and value is not None:
                check_count(what, value)
            elif name in LENGTHS:
                check_positive(what, value)
            elif name == "decay":
                check_not_negative(what, value)
        return make(*args, **kwargs)

    return checked


@preset
def snn(steps: int) -> Settings:
    """Spiking network: flat temperature, biased rotation, absorb every 20 steps."""
    del steps  # nothing is scheduled
    return Settings(
        subspace=LayerWise(4),
        rotation=Biased(),
        temperature=0.5,
        step_radius=TimesTemperature(2.0),
        probe_radius=TimesTemperature(1.0),
        rules=(Absorb(20),),
    )


@preset
def mnist(steps: int) -> Settings:
    """A ReLU network: everything annealed, plans reused for three steps."""
    return Settings(
        subspace=LayerWise(8),
        temperature=Cosine(10.0, 0.1, steps),
        step_radius=Length(Cosine(5.0, 1.0, steps)),
        probe_radius=Length(Cosine(10.0, 2.0, steps)),
        rules=(PlanReuse(3, ema=0.7),),
    )


@preset
def int8(steps: int) -> Settings:
    """Quantized weights: long steps, short probes, a little momentum."""
    return argmax(steps).changed(rules=(Momentum(Linear(0.3, 0.5, steps)),))


@preset
def argmax(steps: int) -> Settings:
    """Argmax attention: long steps, short probes."""
    return Settings(
        subspace=LayerWise(8),
        temperature=Cosine(5.0, 0.3, steps),
        step_radius=Length(Cosine(32.0, 8.0, steps)),
        probe_radius=Length(Cosine(2.0, 0.5, steps)),
    )


@preset
def staircase(steps: int) -> Settings:
    """Staircase activations: the longest steps of the gallery."""
    return Settings(
        subspace=LayerWise(4),
        temperature=Cosine(5.0, 1.0, steps),
        step_radius=Length(Cosine(64.0, 32.0, steps)),
        probe_radius=Length(Cosine(2.0, 1.0, steps)),
    )


@preset
def moe(steps: int) -> Settings:
    """Hard mixture of experts: flat temperature, annealed steps, biased rotation."""
    return Settings(
        subspace=LayerWise(4),
        rotation=Biased(),
        temperature=0.5,
        step_radius=Length(Cosine(12.0, 4.0, steps)),
        probe_radius=TimesTemperature(1.0),
    )


@preset
def maxsat(steps: int, num_variables: int) -> Settings:
    """MAX-SAT in the full space; radii grow with the square root of the problem."""
    scale = math.sqrt(num_variables / 1e5)
    reuse = (PlanReuse(3, ema=0.7),) if num_variables < 1_000_000 else ()
    return Settings(
        subspace=Full(),
        polytope=Simplex(2),
        temperature=Cosine(5.0, 0.5, steps),
        step_radius=Length(Cosine(3000.0 * scale, 600.0 * scale, steps)),
        probe_radius=Length(Cosine(100.0 * scale, 20.0 * scale, steps)),
        rules=(*reuse, Momentum(Linear(0.5, 0.95, steps))),
    )


@preset
def maxsat_realized(num_variables: int, num_clauses: int, unit: float = 1.0) -> Settings:
    """MAX-SAT with the schedules that the printed runs had in fact; they do not span the run.

    The runs told their schedules no number of steps, so these took periods of their own: a cosine
    one step per 0.01 between its ends (so the step radius is flat, as a note of the paper says, and
    ε is at its end after 450 steps), momentum 50 steps. Costs were fractions of falsified clauses,
    from a million variables on their number; here they are always their number, so ε is scaled.

    Args:
        num_variables: Radii grow with its square root.
        num_clauses: What a fraction is of.
        unit: Weight of a clause, if not one.
    """
    scale, many = math.sqrt(num_variables / 1e5), num_variables >= 1_000_000
    counted = unit if many else unit * num_clauses
    return maxsat(1, num_variables).changed(
        temperature=Cosine(5.0 * counted, 0.5 * counted, _period(5.0, 0.5)),
        step_radius=Length(_realize(3000.0 * scale, 600.0 * scale)),
        probe_radius=Length(_realize(100.0 * scale, 20.0 * scale)),
        rules=(Momentum(Linear(0.5, 0.95, 49)), *(() if many else (PlanReuse(3, ema=0.7),))),
    )


def _period(start: float, end: float) -> int:
    """The steps that a cosine of the printed MAX-SAT runs took from one value to the other."""
    return max(1, math.ceil((start - end) / 0.01))


def _realize(start: float, end: float) -> Cosine:
    return Cosine(start, end, _period(start, end))


@preset
def rl(steps: int = 200) -> Settings:
    """Small policies in the full space."""
    return Settings(
        subspace=Full(),
        polytope=Simplex(2),
        temperature=Cosine(1.0, 0.1, steps),
        step_radius=TimesTemperature(0.5),  # not scheduled, hence multiples of ε in the paper
        probe_radius=TimesTemperature(1.0),
    )


@preset
def etth1(steps: int) -> Settings:
    """LSTM forecasting: the MNIST schedule with momentum."""
    momentum = Momentum(Linear(0.5, 0.95, steps))
    return mnist(steps).changed(rules=(PlanReuse(3, ema=0.7), momentum))


@preset
def sst2(steps: int) -> Settings:
    """A transformer from scratch on SST-2: flat temperature, rank 64.

    The paper prints no radii for it; these are those of its run on all weights of GPT-2.
    """
    del steps  # nothing is scheduled
    return Settings(
        subspace=LayerWise(64),
        temperature=0.1,
        step_radius=TimesTemperature(2.0),
        probe_radius=TimesTemperature(1.0),
    )


@preset
def theory(
    temperature: float = 0.5, step_radius: float = 2.0, probe_radius: float = 1.0, rank: int = 4
) -> Settings:
    """The configuration the convergence theorem describes; radii are multiples of ε.

    Flat temperature, r_s (t + 1)^−0.6, independent rotations, mollifier jitter on probes and
    steps, the orthoplex, an orthonormal subspace and no heuristics.
    """
    return Settings(
        subspace=LayerWise(rank),
        polytope=Orthoplex(8),
        temperature=temperature,
        step_radius=TimesTemperature(PowerDecay(step_radius, 0.6)),
        probe_radius=TimesTemperature(probe_radius),
        jitter=Jitter(probe=Mollifier(0.05), step=Mollifier(0.05)),
    )


def theory_mode(settings: Settings, cooling: float = 1.0) -> Settings:
    """The theorem's configuration at the temperature and radii a run begins with.

    Args:
        settings: Of the run.
        cooling: What the temperature is divided by; lengths stay.
    """
    warm = temperature_at(settings.temperature, 0)
    step = length_at("step_radius", settings.step_radius, 0, warm)
    probe = length_at("probe_radius", settings.probe_radius, 0, warm)
    flat = warm / cooling
    return theory(flat, step / flat, probe / flat).changed(subspace=settings.subspace)
