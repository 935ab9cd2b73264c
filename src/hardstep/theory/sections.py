"""Lemmas generic-section and blockwise-section: what a probe plane sees of a wall.

A plane ΠE_i is transversal to the wall {θ_j = c} iff row j of Π has a nonzero entry in the
particle's columns. Projections made layer by layer often are not; their sections are proper all
the same, because only a plane whose base point sits exactly on a wall can lie within it.
"""

import math
from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from hardstep import seeds
from hardstep.geometry import Jitter, Mollifier, Orthoplex, ParticleMap
from hardstep.optim import PolyStep
from hardstep.schedules import TimesTemperature
from hardstep.subspaces import BoundSubspace, Global, LayerWise, Layout
from hardstep.theory.numerics import Array, farthest
from hardstep.theory.suite import Evidence, Setup, Values, check

DIM = 4
NUM_PARTICLES = 29
FIRST, SECOND = range(14), range(17, 27)  # planes of the two weights; the rest are biases'
PITCH = 0.01  # of the walls at (m + ½)·PITCH, a quantizer's
Walls = tuple[NDArray[np.int64], Array]  # coordinates and levels


def _network(seed: int) -> dict[str, Tensor]:
    """An MLP 16–12–8, 308 numbers; the shares the paper prints are those of its shape."""
    shapes = {"1.weight": (12, 16), "1.bias": (12,), "2.weight": (8, 12), "2.bias": (8,)}
    generator = seeds.generator(seed, "theory network")
    return {
        name: torch.randn(shape, generator=generator, dtype=torch.float64)
        for name, shape in shapes.items()
    }


def _flat(tensors: dict[str, Tensor]) -> Array:
    return np.concatenate([tensor.numpy().ravel() for tensor in tensors.values()])


def _transversal(subspace: BoundSubspace) -> NDArray[np.bool_]:
    """Which planes (rows) are transversal to which coordinate walls (columns)."""
    axes = torch.eye(subspace.dim, dtype=torch.float64)
    moves = np.stack([_flat(subspace.expand(axis)) != 0 for axis in axes])
    index = ParticleMap(subspace.group_sizes, DIM).index.numpy()
    return np.stack([moves[columns[columns >= 0]].any(axis=0) for columns in index])


@check("B1", "blockwise-section", "X")
def transversal_shares(setup: Setup) -> Evidence:
    """Planes of a layer-wise projection miss the walls of other layers."""
    layout = Layout(_network(setup.seed))
    layered = _transversal(LayerWise(rank=2).bind(layout, DIM, setup.seed)).mean(axis=1)
    dense = _transversal(Global(dim=116).bind(layout, DIM, setup.seed)).mean(axis=1)
    total = layout.num_parameters
    expected = {"first layer": 192 / total, "second layer": 96 / total, "identity": 4 / total}
    biases = [i for i in range(NUM_PARTICLES) if i not in FIRST and i not in SECOND]

    def shares(by_plane: Array) -> dict[str, float]:
        groups = zip(expected, (FIRST, SECOND, biases), strict=True)
        return {name: farthest(by_plane[list(group)], expected[name]) for name, group in groups}

    everywhere = {"global": float(dense.min())}
    return Evidence(
        shares(layered) | everywhere, expected | {"global": 1.0}, 1e-12,
        {"a global projection instead": shares(dense) | everywhere},
        paper={"first layer": 0.623, "second layer": 0.312, "identity": 0.013, "global": 1.0},
        paper_tol=5e-4,
        note="The network is ours: the paper names none, and this one has all four of its shares.",
    )  # fmt: skip


def _iterates(seed: int, num: int) -> tuple[list[Array], NDArray[np.bool_]]:
    """Parameters after each of the first jittered steps on a quadratic, and the planes."""
    tensors = _network(seed)
    optimizer = PolyStep(
        tensors, subspace=LayerWise(rank=2), polytope=Orthoplex(DIM), temperature=0.1,
        step_radius=TimesTemperature(1.0), probe_radius=TimesTemperature(1.0),
        jitter=Jitter(probe=Mollifier(0.05), step=Mollifier(0.05)), seed=seed,
    )  # fmt: skip
    found = []
    for _ in range(num):
        optimizer.step(batched=lambda t: sum((0.5 * x.flatten(1) ** 2).sum(1) for x in t.values()))
        found.append(_flat(tensors))
    return found, _transversal(optimizer.subspace)


def _sections(
    iterates: list[Array], walls: list[Walls], transversal: NDArray[np.bool_]
) -> dict[str, float]:
    """How many sections there are, how many are whole planes, and how often a wall is met."""
    improper = met = 0
    for point, (coordinates, levels) in zip(iterates, walls, strict=True):
        on_wall = point[coordinates] == levels
        met += int(on_wall.sum())
        improper += int((~transversal[:, coordinates] & on_wall).sum())
    sections = len(transversal) * sum(len(levels) for _, levels in walls)
    return {"sections": float(sections), "improper": float(improper), "on a wall": float(met)}


def _segment_section() -> dict[str, float]:
    """The line R × {0} through 0, which is off D = [1, 2] × {0} and still has D in it."""
    line = np.stack([np.linspace(-3, 3, 601), np.zeros(601)], axis=1)

    def inside(points: Array) -> NDArray[np.bool_]:
        x, y = points.T
        return np.asarray((x >= 1) & (x <= 2) & (y == 0))

    whole = inside(line).sum() > 1  # more than a point of a line: one-dimensional
    met = inside(np.zeros((1, 2))).sum()
    return {"sections": 1.0, "improper": float(whole), "on a wall": float(met)}


@check("B2", "blockwise-section", "X")
def proper_sections(setup: Setup) -> Evidence:
    """At jittered iterates no probe plane lies within a wall."""
    iterates, transversal = _iterates(setup.seed, 10)
    rng = setup.rng()

    def nearest(point: Array) -> Walls:
        coordinates = rng.integers(len(point), size=256)
        levels = (np.floor(point[coordinates] / PITCH) + 0.5) * PITCH
        return coordinates, levels

    walls = [nearest(point) for point in iterates]
    placed = [point.copy() for point in iterates]
    coordinates, levels = walls[0]
    placed[0][coordinates[0]] = levels[0]
    expected = {"sections": 74_240.0, "improper": 0.0, "on a wall": 0.0}
    return Evidence(
        _sections(iterates, walls, transversal), expected, 0.0,
        {
            "one coordinate put on a wall": _sections(placed, walls, transversal),
            "off D, but D along the line": _segment_section(),
        },
        tols={"sections": math.inf}, also=lambda v: v["sections"] > 0, paper=expected,
    )  # fmt: skip


OnWall = Callable[[Array], NDArray[np.bool_]]  # of points (n, 20)
GEOMETRIES: dict[str, OnWall] = {
    "threshold": lambda points: points[:, 5] == 0.3,
    "tie": lambda points: points[:, 5] == points[:, 6],
    "floor": lambda points: points[:, 5] == np.floor(points[:, 5]),
}


def _base(rng: np.random.Generator, geometry: str, shift: float) -> Array:
    """A point on a wall, then shifted off it."""
    base = rng.standard_normal(20)
    base[5] = {"threshold": 0.3, "tie": base[6], "floor": 2.0}[geometry]
    base[5] += shift
    return base


@check("B3", "generic-section", "X")
def coordinate_planes(setup: Setup) -> Evidence:
    """A coordinate plane through a wall can lie in it; a Gaussian plane does not."""
    axes = np.eye(20)[:2]
    planes = setup.rng(1).standard_normal((20, 2, 20))
    inside = setup.rng(2).standard_normal((20_000, 2))

    def shares(shift: float) -> Values:
        values = {}
        for geometry, on_wall in GEOMETRIES.items():
            base = _base(setup.rng(3), geometry, shift)
            values[f"axes, {geometry}"] = float(on_wall(base + inside @ axes).mean())
            met = [float(on_wall(base + inside @ plane).mean()) for plane in planes]
            values[f"Gaussian, {geometry}"] = max(met)
        return values

    measured = shares(0.0)
    expected = {name: float(name.startswith("axes")) for name in measured}
    return Evidence(
        measured, expected, 0.0, {"a base 1e-6 off the wall": shares(1e-6)}, paper=expected,
        paper_tol=1e-3,
    )  # fmt: skip
