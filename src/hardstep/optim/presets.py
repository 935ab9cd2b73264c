"""Settings that work: ours for any network, and the paper's, per task and in theory mode.

`PolyStep(model, presets.general(steps=500))`. Schedules span the whole run, so presets take the
number of steps. The paper's are defined in `paper_presets`, in its own subspace.
"""

from hardstep.geometry import Simplex
from hardstep.optim.paper_presets import (
    argmax,
    etth1,
    int8,
    maxsat,
    maxsat_realized,
    mnist,
    moe,
    preset,
    rl,
    snn,
    sst2,
    staircase,
    theory,
)
from hardstep.optim.rules import FullDecay, LeavePlateau, WeightDecay, WeightMomentum
from hardstep.optim.settings import Settings
from hardstep.schedules import Cosine, Length, Linear
from hardstep.solvers import RowSoftmax, Standardized
from hardstep.subspaces import Full, RowWise, Sketch

__all__ = [
    "argmax",
    "etth1",
    "frugal",
    "general",
    "int8",
    "maxsat",
    "maxsat_realized",
    "mnist",
    "moe",
    "policy",
    "rl",
    "signs",
    "sketch",
    "snn",
    "sst2",
    "staircase",
    "theory",
    "warm",
    "wide",
]


@preset
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


@preset
def wide(steps: int, rank: int = 4) -> Settings:
    """Ours for layers of hundreds of inputs, such as MNIST's: shorter steps, fresh directions.

    Chosen on MNIST validation with the spiking network (docs/lab/tuning.md).
    """
    return general(steps, rank=rank, step_radius=0.07, probe_radius=1.0, redraw=10)


@preset
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


@preset
def frugal(steps: int, share: float = 0.1, step_radius: float = 0.3) -> Settings:
    """Ours for when evaluations are what is scarce.

    Many cheap steps go further with them than a few large ones: units take turns, a share of them
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


@preset
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


@preset
def policy(
    steps: int, dim: int = 8, step_radius: float = 3.0, probe_radius: float = 8.0
) -> Settings:
    """Ours for policies in a simulator: few candidates, any scale of returns, no plateau for ever.

    `sketch` over all weights, with a rule that reaches further while every probe returns the same
    (`LeavePlateau`): at the start of many environments nothing that a policy does is rewarded.
    Interactions are better spent on many steps of 9 candidates than on half as many of 17.
    """
    searched = sketch(steps, dim, step_radius, probe_radius, rank=None)
    return searched.changed(rules=(*searched.rules, LeavePlateau()))


@preset
def signs(steps: int, unit: float = 1.0) -> Settings:
    """Ours for variables that are signs (true where x_i >= 0), such as MAX-SAT's, at any size.

    Probes reach far beyond any x, so every probe sets the signs of its particle, and x adds up
    what that was worth. Weight decay is what keeps x movable: with much of it only the latest
    preferences count and signs flip freely, with little a sign flips only if the preference
    lasts. Lowering it over the run anneals the search (docs/lab/maxsat.md).

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
