"""The worker that times the authors' package, through its documented interface only.

`PolyStepOptimizer(model, …)` with a `HybridSubspace` or without one, then `step_batch`, which
its documentation gives as the way to its fast evaluation paths. Everything not named below is at
its default. Plan reuse (`amortize_steps`) is off by default.
"""

import platform
import time
from contextlib import suppress
from importlib.metadata import version
from typing import Any

import torch
from polystep import (
    CosineEpsilon,
    HybridSubspace,
    ParamLayout,
    PolyStepOptimizer,
    get_diagnostics,
)
from torch import Tensor, nn

from benchmarks.step.batches import batch
from benchmarks.step.models import Spiking, build
from benchmarks.step.rows import BY_NAME, PAPER, Row, Value
from benchmarks.step.wire import serve, timed


class Enough(BaseException):
    """Ends a step of which a part has been timed; not an error, so nothing may catch it."""


class Counted(torch.autograd.Function):
    """The identity, which counts candidates: `vmap` tells it how many it stands for."""

    done, most = 0, 0.0

    @staticmethod
    def forward(values: Tensor) -> Tensor:
        """The same values."""
        return values.view_as(values)

    @staticmethod
    def setup_context(context: Any, inputs: Any, output: Any) -> None:
        """Nothing is kept: nobody differentiates."""

    @staticmethod
    def vmap(info: Any, axes: Any, values: Tensor) -> tuple[Tensor, Any]:
        """Called once per chunk of candidates.

        Raises:
            Enough: The share to be timed has been evaluated.
        """
        if Counted.done >= Counted.most:
            raise Enough
        Counted.done += info.batch_size
        return values.view_as(values), axes[0]


class CountedSpiking(Spiking):
    """The spiking network, counting the candidates whose current differs."""

    def current(self, inputs: Tensor) -> Tensor:
        """What drives the hidden neurons."""
        return Counted.apply(super().current(inputs))


class Theirs:
    """The state between requests."""

    row: Row
    batch_size: int
    optimizer: PolyStepOptimizer

    def setup(self, name: str, threads: int, batch_size: int) -> dict[str, Any]:
        """Build the model and the optimizer of a row."""
        torch.set_num_threads(threads)
        self.row, self.batch_size = BY_NAME[name], batch_size
        self.loss_fn = nn.CrossEntropyLoss()
        started = time.perf_counter()
        model = self._build()
        return {
            "setup_seconds": time.perf_counter() - started,
            "parameters": sum(p.numel() for p in model.parameters()),
            **self._searched(model),
            "versions": versions(),
            **PAPER[self.row.task].lengths(),
        }

    def _searched(self, model: nn.Module) -> dict[str, Any]:
        if self.row.kind == "full":
            return {
                "subspace": "full space",
                "coordinates": sum(map(Tensor.numel, model.parameters())),
            }
        subspace = _hybrid(model, self.row)
        return {
            "subspace": f"HybridSubspace({self.row.rank})",
            "coordinates": subspace.subspace_dim,
        }

    def _build(self) -> nn.Module:
        model = build(self.row.task)
        if self.row.their_share < 1:
            counted = CountedSpiking()
            counted.load_state_dict(model.state_dict())
            model = counted
        self.optimizer = _optimizer(model, self.row)
        return model

    def step(self, seed: int) -> dict[str, Any]:
        """One step, or the timed share of one, scaled to all probes."""
        inputs, target = batch(seed, self.batch_size, self.row.classes)
        if self.row.their_share < 1:
            return self._part_of_a_step(inputs, target)
        with timed() as taken:
            loss = self.optimizer.step_batch(inputs, target, loss_fn=self.loss_fn)
        return {**taken, "loss": loss, "probes": get_diagnostics(self.optimizer)["evals"][-1]}

    def _part_of_a_step(self, inputs: Tensor, target: Tensor) -> dict[str, Any]:
        probes = self.row.their_probes
        # An interrupted optimizer is in an unknown state; the next step starts with a new one.
        self._build()
        Counted.done, Counted.most = 0, self.row.their_share * probes
        with timed() as taken, suppress(Enough):
            self.optimizer.step_batch(inputs, target, loss_fn=self.loss_fn)
        share = Counted.done / probes
        scaled = {name: seconds / share for name, seconds in taken.items()}
        return {**scaled, "share": share, "timed": taken, "probes": probes}


def versions() -> dict[str, str]:
    """Of what their side runs on."""
    return {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "polystep": version("polystep"),
    }


def _optimizer(model: nn.Module, row: Row) -> PolyStepOptimizer:
    paper = PAPER[row.task]
    options: dict[str, Any] = {
        "epsilon": _schedule(paper.temperature, paper.steps),
        "step_radius": _schedule(paper.step_radius, paper.steps),
        "probe_radius": _schedule(paper.probe_radius, paper.steps),
        "biased_rotation": paper.biased,
        "solver": "softmax",
        "polytope_type": "simplex",
        "max_iterations": paper.steps,
        "seed": 0,
    }
    if paper.momentum:
        initial, final = paper.momentum
        options |= {"use_momentum": True, "momentum_init": initial, "momentum_final": final}
    if row.kind == "full":
        return PolyStepOptimizer(model, particle_dim=row.particle_dim, **options)
    options |= {"subspace": _hybrid(model, row), "subspace_particle_dim": row.particle_dim}
    return PolyStepOptimizer(model, **options)


def _hybrid(model: nn.Module, row: Row) -> HybridSubspace:
    return HybridSubspace.from_layout(ParamLayout.from_module(model), rank=row.rank, seed=0)


def _schedule(value: Value, steps: int) -> float | CosineEpsilon:
    if not isinstance(value, tuple):
        return value
    return CosineEpsilon(init=value[0], target=value[1], total_steps=steps)


if __name__ == "__main__":
    worker = Theirs()
    serve({"setup": worker.setup, "step": worker.step})
