"""Settings that work: ours for any network, the paper's per task, and its theory mode.

`PolyStep(model, presets.general(steps=500))`. Where the paper schedules a value, the schedule
runs over the whole run, so these take the number of steps. Radii say their unit: a multiple
of a flat temperature, or a length. They use the row-wise subspace at the paper's rank;
`presets.snn(steps).changed(subspace=LayerWise(4))` is the paper's own.
"""

import math

from hardstep.geometry import Biased, Jitter, Mollifier, Orthoplex, Simplex
from hardstep.optim.rules import Absorb, Momentum, PlanReuse, WeightDecay
from hardstep.optim.settings import Settings
from hardstep.optim.weight_rules import FullDecay, WeightMomentum
from hardstep.schedules import Cosine, Length, Linear, PowerDecay, TimesTemperature
from hardstep.solvers import RowSoftmax, Standardized
from hardstep.subspaces import Full, RowWise, Sketch


def general(
    steps: int,
    rank: int = 8,
    step_radius: float = 0.25,
    probe_radius: float = 2.0,
    redraw: int | None = None,
) -> Settings:
    """Ours: cold, short steps that shrink over the run. A good start for any network.

    Nearly every row is saturated, so each particle goes toward its best direction by about
    the step radius, however large the difference in loss. The temperature suits losses of
    order one, such as cross-entropy. Wide layers gain from directions redrawn every few steps:
    fixed ones never leave a small part of their space (see `wide`).
    """
    return Settings(
        subspace=RowWise(rank=rank, redraw=redraw),
        step_radius=Length(Cosine(step_radius, 0.03 * step_radius, steps)),
        probe_radius=Length(probe_radius),
    )


def wide(steps: int, rank: int = 4) -> Settings:
    """Ours for layers of hundreds of inputs, such as MNIST's: shorter steps, fresh directions.

    Chosen on MNIST validation with the spiking network (docs/choosing.md).
    """
    return general(steps, rank=rank, step_radius=0.07, probe_radius=1.0, redraw=10)


def warm(
    steps: int,
    rank: int = 8,
    step_radius: float = 0.3,
    probe_radius: float = 1.0,
    temperature: float = 0.05,
    decay: float = 4e-4,
) -> Settings:
    """Ours for wide layers whose loss is smooth in most weights, hard parts or not.

    Few rows are saturated, so a particle's move follows the size of its differences like a
    gradient's, and the radius only bounds it. Directions are new at every step, and what they
    found is added up in the weights (`WeightMomentum`). Over thousands of steps a little decay of
    all weights keeps the network from overfitting with what the loss hardly feels (`FullDecay`).
    A spiking network wants `wide`.
    """
    shrinking = (FullDecay(Cosine(decay, 0.025 * decay, steps)),) if decay else ()
    return Settings(
        subspace=RowWise(rank=rank, redraw=1),
        temperature=temperature,
        step_radius=Length(Cosine(step_radius, 0.025 * step_radius, steps)),
        probe_radius=Length(probe_radius),
        rules=(WeightMomentum(0.9), *shrinking),
    )


def frugal(steps: int, share: float = 0.1, step_radius: float = 0.3) -> Settings:
    """Ours for when evaluations are what is scarce.

    Many cheap steps go further with them than a few dear ones: units take turns, a share of them
    at a time, in new directions at every turn. What a few units change of the loss is little, so
    the temperature is low enough for every particle to go about the step radius all the same.
    """
    return Settings(
        subspace=RowWise(rank=2, redraw=1, share=share),
        polytope=Simplex(4),
        temperature=0.001,
        step_radius=Length(Cosine(step_radius, 0.03 * step_radius, steps)),
        probe_radius=Length(2.0),
    )


def sketch(
    steps: int,
    dim: int = 16,
    step_radius: float = 1.0,
    probe_radius: float = 4.0,
    rank: int | None = 8,
) -> Settings:
    """Ours for when evaluations are scarce and there are many units.

    One particle of `dim` random directions through all weights, new at every step: `dim` + 1
    evaluations each. Losses are measured in units of their spread, so any objective will do, and
    what steps have found adds up in the weights. A radius is a length of all weights together, and
    both are worth tuning: `hardstep tune --option polystep.preset=sketch`.
    """
    return Settings(
        subspace=Sketch(of=RowWise(rank=rank)),
        polytope=Simplex(dim),
        solver=Standardized(RowSoftmax()),
        temperature=1.0,
        step_radius=Length(Cosine(step_radius, 0.03 * step_radius, steps)),
        probe_radius=Length(probe_radius),
        rules=(WeightMomentum(0.9),),
    )


def snn(steps: int) -> Settings:
    """Spiking network: flat temperature, biased rotation, absorb every 20 steps."""
    del steps  # nothing is scheduled
    return Settings(
        subspace=RowWise(rank=4),
        rotation=Biased(),
        temperature=0.5,
        step_radius=TimesTemperature(2.0),
        probe_radius=TimesTemperature(1.0),
        rules=(Absorb(20),),
    )


def mnist(steps: int) -> Settings:
    """A ReLU network: everything annealed, plans reused for three steps."""
    return Settings(
        subspace=RowWise(rank=8),
        temperature=Cosine(10.0, 0.1, steps),
        step_radius=Length(Cosine(5.0, 1.0, steps)),
        probe_radius=Length(Cosine(10.0, 2.0, steps)),
        rules=(PlanReuse(3, ema=0.7),),
    )


def int8(steps: int) -> Settings:
    """Quantised weights: long steps, short probes, a little momentum."""
    return argmax(steps).changed(rules=(Momentum(Linear(0.3, 0.5, steps)),))


def argmax(steps: int) -> Settings:
    """Argmax attention: long steps, short probes."""
    return Settings(
        subspace=RowWise(rank=8),
        temperature=Cosine(5.0, 0.3, steps),
        step_radius=Length(Cosine(32.0, 8.0, steps)),
        probe_radius=Length(Cosine(2.0, 0.5, steps)),
    )


def staircase(steps: int) -> Settings:
    """Staircase activations: the longest steps of the gallery."""
    return Settings(
        subspace=RowWise(rank=4),
        temperature=Cosine(5.0, 1.0, steps),
        step_radius=Length(Cosine(64.0, 32.0, steps)),
        probe_radius=Length(Cosine(2.0, 1.0, steps)),
    )


def moe(steps: int) -> Settings:
    """Hard mixture of experts: flat temperature, annealed steps, biased rotation."""
    return Settings(
        subspace=RowWise(rank=4),
        rotation=Biased(),
        temperature=0.5,
        step_radius=Length(Cosine(12.0, 4.0, steps)),
        probe_radius=TimesTemperature(1.0),
    )


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


def signs(steps: int, unit: float = 1.0) -> Settings:
    """Ours for variables that are signs (true where x_i >= 0), such as MAX-SAT's, at any size.

    Probes reach far beyond any x, so every probe sets the signs of its particle, and x adds up
    what that was worth. Weight decay is what keeps x movable: with much of it only the latest
    preferences count and signs flip freely, with little a sign flips only if the preference
    lasts. Lowering it over the run anneals the search (docs/maxsat.md).

    Args:
        steps: Of the run.
        unit: What one typical change costs; the temperature.
    """
    return Settings(
        subspace=Full(),
        polytope=Simplex(2),
        temperature=unit,
        step_radius=Length(1.0),
        probe_radius=Length(400.0),
        rules=(WeightDecay(Linear(0.9, 0.1, steps)),),
    )


def rl(steps: int = 200) -> Settings:
    """Small policies in the full space."""
    return Settings(
        subspace=Full(),
        polytope=Simplex(2),
        temperature=Cosine(1.0, 0.1, steps),
        step_radius=TimesTemperature(0.5),  # not scheduled, hence multiples of ε in the paper
        probe_radius=TimesTemperature(1.0),
    )


def etth1(steps: int) -> Settings:
    """LSTM forecasting: the MNIST schedule with momentum."""
    momentum = Momentum(Linear(0.5, 0.95, steps))
    return mnist(steps).changed(rules=(PlanReuse(3, ema=0.7), momentum))


def theory(
    temperature: float = 0.5, step_radius: float = 2.0, probe_radius: float = 1.0, rank: int = 4
) -> Settings:
    """The configuration the convergence theorem describes; radii are multiples of ε.

    Flat temperature, r_s (t + 1)^−0.6, independent rotations, mollifier jitter on probes and
    steps, the orthoplex, an orthonormal subspace and no heuristics.
    """
    return Settings(
        subspace=RowWise(rank=rank),
        polytope=Orthoplex(8),
        temperature=temperature,
        step_radius=TimesTemperature(PowerDecay(step_radius, 0.6)),
        probe_radius=TimesTemperature(probe_radius),
        jitter=Jitter(probe=Mollifier(0.05), step=Mollifier(0.05)),
    )
