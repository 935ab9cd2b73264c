"""What is compared: one row per line of the published table, with what it must reach.

Both workers read this file; it imports nothing, so it loads in either environment.
"""

from dataclasses import dataclass
from typing import Literal

Kind = Literal["row-wise", "full", "layer-wise"]
Value = float | tuple[float, float]  # flat, or from and to over the run


@dataclass(frozen=True)
class Paper:
    """The paper's settings of one task; radii of a flat temperature are multiples of it."""

    temperature: Value
    step_radius: Value
    probe_radius: Value
    steps: int = 3180
    biased: bool = False
    momentum: tuple[float, float] | None = None

    def lengths(self) -> dict[str, float]:
        """Temperature and radii of the first step; a scheduled radius is a length by itself."""
        temperature = _start(self.temperature)
        radii = {"step_radius": self.step_radius, "probe_radius": self.probe_radius}
        scaled = {
            name: _start(value) * (1.0 if isinstance(value, tuple) else temperature)
            for name, value in radii.items()
        }
        return {"temperature": temperature, **scaled}


def _start(value: Value) -> float:
    return value[0] if isinstance(value, tuple) else value


PAPER = {
    "snn": Paper(0.5, 2.0, 1.0, biased=True),
    "snn-once": Paper(0.5, 2.0, 1.0, biased=True),
    "mlp": Paper((10.0, 0.1), (5.0, 1.0), (10.0, 2.0)),  # without its plan reuse
    "int8": Paper((5.0, 0.3), (32.0, 8.0), (2.0, 0.5), momentum=(0.3, 0.5)),
    "staircase": Paper((5.0, 1.0), (64.0, 32.0), (2.0, 1.0)),
    "argmax": Paper((5.0, 0.3), (32.0, 8.0), (2.0, 0.5)),
    "moe": Paper(0.5, (12.0, 4.0), 1.0, steps=6330, biased=True),
}


@dataclass(frozen=True)
class Row:
    """One comparison.

    Args:
        name: Short, for the command line.
        title: For tables.
        task: Which network and settings.
        kind: Our subspace; theirs is the full space for "full", else their hybrid one.
        rank: Of both subspaces.
        parameters: Of the network.
        probes: Of our step; theirs where it differs is `their_probes`.
        must: The ratio to reach; 0 where none is set.
        aim: The ratio hoped for; 0 where none is set.
        their_share: How much of their step is timed; the rest is extrapolated.
    """

    name: str
    title: str
    task: str
    kind: Kind
    rank: int
    parameters: int
    probes: int
    must: float
    aim: float
    their_probes: int
    their_share: float = 1.0

    @property
    def classes(self) -> int:
        """Outputs of the network."""
        return 20 if self.task == "moe" else 10

    @property
    def particle_dim(self) -> int:
        """Coordinates of one particle; a simplex has one vertex more."""
        return 2 if self.kind == "full" else 8


def _row(name: str, title: str, task: str, kind: Kind, rank: int, *numbers: float) -> Row:
    parameters, probes, must, aim = numbers
    return Row(name, title, task, kind, rank, int(parameters), int(probes), must, aim, int(probes))


ROWS = (
    _row("snn", "SNN, rank 4", "snn", "row-wise", 4, 101_770, 4_887, 200, 600),
    _row("snn-once", "SNN, current by hand", "snn-once", "row-wise", 4, 101_770, 4_887, 0, 0),
    _row("mlp", "MLP, rank 8", "mlp", "row-wise", 8, 101_770, 9_612, 25, 80),
    _row("int8", "INT8, rank 8", "int8", "row-wise", 8, 118_282, 12_060, 15, 50),
    _row("staircase", "staircase, rank 4", "staircase", "row-wise", 4, 118_282, 6_183, 10, 40),
    _row("argmax", "argmax attention, rank 8", "argmax", "row-wise", 8, 119_306, 13_212, 10, 40),
    # Ours pads every unit to whole particles, theirs the concatenated coordinates once.
    Row("moe", "hard MoE, rank 4", "moe", "row-wise", 4, 235_672, 15_894, 10, 40, 15_885),
    Row(
        "snn-full",
        "SNN, full space",
        "snn",
        "full",
        0,
        101_770,
        152_655,
        60,
        300,
        152_655,
        their_share=0.1,
    ),
    _row("mlp-full", "MLP, full space", "mlp", "full", 0, 101_770, 152_655, 1.5, 4),
    _row("mlp-layer", "MLP, layer-wise, rank 8", "mlp", "layer-wise", 8, 101_770, 9_612, 1, 1.2),
)
BY_NAME = {row.name: row for row in ROWS}
