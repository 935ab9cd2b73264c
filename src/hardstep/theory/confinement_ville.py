"""Confinement by Ville's inequality (confinement-ville): the energy drifts down outside a ball."""

import math

import numpy as np

from hardstep.geometry import Orthoplex
from hardstep.theory.spheres import best_axis_overlap
from hardstep.theory.stable_schedules_walks import DECAY, SPIKE
from hardstep.theory.steps import Stepper, directions, greedy_stepper, quadratic, rotations, walk
from hardstep.theory.suite import Evidence, Setup, check


def _energy_drifts(setup: Setup, sign: float) -> dict[str, float]:
    """E[ΔV_H] on an isotropic bowl, and how far it is below the two bounds on any."""
    num = 40_000
    looks = directions(Orthoplex(4), rotations(setup.seed, num, 4, 9))
    found, slack, sharp = {}, [], []
    for curvature in (np.ones(4), np.linspace(1.0, 9.0, 4), SPIKE):
        for distance in (0.01, 0.1, 1.0, 5.0):
            at = np.full((num, 4), 0.5 * distance)
            step = sign * greedy_stepper(curvature, 50.0).move(at, looks)
            change = float((curvature * ((at + step) ** 2 - at**2)).sum(axis=1).mean())
            pull = float(np.abs((curvature * at * step).sum(axis=1)).mean())
            slack.append(float(curvature.max()) - change)
            sharp.append(float(curvature.max()) - 2 * pull - change)
            if curvature.max() == 1.0:
                found[f"H = I, ‖z‖ = {distance:g}"] = change
    return found | {"slack": min(slack), "slack with the pull": min(sharp)}


def _tail_excess(setup: Setup, sign: float) -> float:
    """The largest excess of the realized tail of sup V_H over its bound, for two bowls."""
    num, num_steps = 60 if setup.quick else 400, 1500
    bowls = np.repeat([np.ones(4), np.linspace(1.0, 9.0, 4)], num, axis=0)
    stepper = Stepper(quadratic(bowls[:, None, None]), greedy_stepper(np.ones(4), 50.0).reach)
    start = np.full((2 * num, 4), 0.5)
    highest = (bowls * start**2).sum(axis=1)
    for at in walk(setup, 9, stepper, start, num_steps, lambda t: sign * DECAY(t), copies=2):
        highest = np.maximum(highest, (bowls * at**2).sum(axis=1))
    radii = np.array([DECAY(step) for step in range(num_steps)])
    excess: list[float] = []
    for tops, bowl in zip(np.split(highest, 2), (bowls[0], bowls[-1]), strict=True):
        first = float((bowl * 0.25).sum() + bowl.max() * (radii**2).sum())
        levels = first * np.geomspace(1.0, 10.0, 8)
        excess += [float((tops >= level).mean()) - first / level for level in levels]
    return max(excess)


@check("G9", "confinement-ville", "M")
def confinement(setup: Setup) -> Evidence:
    """The energy drifts down outside a ball; its tail is below Ville's."""
    overlap = best_axis_overlap(4)
    distances = {f"H = I, ‖z‖ = {distance:g}": distance for distance in (0.01, 0.1, 1.0, 5.0)}
    expected = {name: 1 - 2 * overlap * distance for name, distance in distances.items()}
    # ΔV = 1 − 2‖z‖·(largest overlap), whose standard deviation is 0.102.
    tols = {name: 4 * 2 * r * 0.102 / math.sqrt(40_000) for name, r in distances.items()}

    def facts(sign: float) -> dict[str, float]:
        return _energy_drifts(setup, sign) | {"tail excess": _tail_excess(setup, sign)}

    return Evidence(
        facts(1.0), expected, max(tols.values()), {"outward steps": facts(-1.0)}, tols=tols,
        also=lambda v: min(v["slack"], v["slack with the pull"] + 1e-9, -v["tail excess"]) >= 0,
        note="Realised tails are far below the bound, so the drifts carry the discrimination.",
    )  # fmt: skip
