"""Four boards on a bench, one Ray actor each: they drift, fail now and then, and disagree.

Each measures the same circuit with a gain and an offset of its own, and the offset wanders. All
probes of a particle go to one board, so an offset is common to what a particle compares, and the
solver standardizes what a gain does to it. A tile that fails is handed out again; a board that
hangs is restarted and calibrated anew.

    pip install 'hardstep[ray]'
    python examples/boards.py
"""

import random
import time

import torch

import hardstep
from hardstep.distributed import Patience, Ray, device
from hardstep.solvers import RowSoftmax, Standardized

WANTED = torch.tensor([1.0, -2.0, 0.5, 3.0, -1.0, 2.0, 0.0, -0.5])  # settings of a perfect circuit


def measure(settings: torch.Tensor) -> float:
    """The circuit's error: its settings are steps of 1/8, as a converter makes them."""
    return float((torch.round(8 * settings) / 8 - WANTED).abs().sum())


class Board:
    """What `prepare` opens: a gain, an offset, and moods."""

    def __init__(self, name: str) -> None:
        self.random = random.Random(name)
        self.gain = self.random.uniform(0.8, 1.2)
        self.offset = self.random.uniform(-5, 5)

    def measure(self, settings: torch.Tensor) -> float:
        """The error, as this board sees it."""
        self.offset += self.random.gauss(0, 0.001)  # it drifts
        if self.random.random() < 0.001:
            raise OSError("the board does not answer")
        if self.random.random() < 0.0002:
            time.sleep(60)  # it hangs
        return self.gain * measure(settings) + self.offset


class OnBoard:
    """The objective; its losses are those of the board of the worker it runs on."""

    def losses(self, candidates: hardstep.Candidates) -> torch.Tensor:
        """One measurement per candidate."""
        found = [
            device().measure(settings)
            for span in candidates.spans()
            for settings in candidates.stacked(span)["settings"]
        ]
        return torch.tensor(found, dtype=torch.float64)


def main(steps: int = 60) -> tuple[float, float]:
    settings = torch.zeros(8)
    before = measure(settings)
    names = ["north", "east", "south", "west"]
    patience = Patience(tries=10, at_least=5.0)
    options = {"num_cpus": 0}  # it is the board that works
    with Ray(names=names, prepare=Board, timeout=5.0, patience=patience, options=options) as boards:
        opt = hardstep.PolyStep(
            {"settings": settings},
            subspace=hardstep.Full(),
            polytope=hardstep.Orthoplex(1),
            solver=Standardized(RowSoftmax()),
            temperature=0.5,
            probe_radius=hardstep.Length(hardstep.Linear(1.0, 0.2, steps)),
            step_radius=hardstep.Length(hardstep.Linear(0.5, 0.05, steps)),
            evaluator=boards,
        )
        for _ in range(steps):
            opt.step(objective=OnBoard())
        print(boards.path)
    after = measure(settings)
    print(f"error {before:.2f} before, {after:.2f} after {opt.evaluations:,} measurements")
    return before, after


if __name__ == "__main__":
    main()
