"""The worker that times the authors' package on the networks of the second table.

As in `theirs`: its documented interface, and everything not named here at its default. It starts
from our weights after their ten steps, with our temperature and our radii.

A step of theirs takes minutes on some networks. So it is timed layer by layer, by steps that search
one layer only, and each of these ends when its share of the time is over; the time per candidate of
a layer, times the candidates of this layer in a whole step, is added up. (The first candidates of a
whole step would not do: they belong to the first layer, and those of later ones may cost less.)
"""

import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import torch
from polystep import HybridSubspace, ParamLayout, PolyStepOptimizer
from torch import Tensor, nn

from benchmarks.step import networks
from benchmarks.step.batches import labeled
from benchmarks.step.network_rows import (
    BATCH,
    BY_NAME,
    PARTICLE_DIM,
    PROBE_RADIUS,
    RANK,
    STEP_RADIUS,
    TEMPERATURE,
    Network,
)
from benchmarks.step.theirs import Enough, versions
from benchmarks.step.wire import serve, timed


class Counted(torch.autograd.Function):
    """The identity, which counts candidates and ends a step when its time is over."""

    done, deadline = 0, 0.0

    @staticmethod
    def forward(values: Tensor) -> Tensor:
        """Called once per candidate, where candidates are evaluated one by one."""
        Counted._count(1)
        return values.view_as(values)

    @staticmethod
    def setup_context(context: Any, inputs: Any, output: Any) -> None:
        """Nothing is kept: nobody differentiates."""

    @staticmethod
    def vmap(info: Any, axes: Any, values: Tensor) -> tuple[Tensor, Any]:
        """Called once per chunk of candidates."""
        Counted._count(info.batch_size)
        return values.view_as(values), axes[0]

    @staticmethod
    def _count(num: int) -> None:
        """Add to what was evaluated before.

        Raises:
            Enough: The time is over.
        """
        Counted.done += num
        if time.perf_counter() > Counted.deadline:
            raise Enough


class CountedNetwork(nn.Module):
    """A network whose outputs are counted."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, inputs: Tensor) -> Tensor:
        """The network's outputs."""
        return Counted.apply(self.network(inputs))


class Theirs:
    """The state between requests."""

    row: Network

    def setup(self, name: str, threads: int, weights: str) -> dict[str, Any]:
        """Build a row's network with the weights of a file."""
        torch.set_num_threads(threads)
        self.row = BY_NAME[name]
        network = networks.NETWORKS[self.row.network]()
        network.load_state_dict(torch.load(weights))
        self.model = CountedNetwork(network.train(self.row.training))
        return {"versions": versions(), "coordinates": _hybrid(self.model).subspace_dim}

    def step(self, seed: int, seconds: float) -> dict[str, Any]:
        """A whole step, from the time of its layers."""
        data, layers = labeled(seed, BATCH), list(_layers(self.model))
        found = [self._search(layer, data, seconds / len(layers)) for layer in layers]
        total = {clock: sum(one[clock] for one in found) for clock in ("wall", "cpu", "foreign")}
        probes = sum(one["probes"] for one in found)
        share = sum(one["done"] for one in found) / probes
        return {**total, "probes": probes, "share": share, "layers": found}

    def _search(self, layer: nn.Module, data: tuple[Tensor, Tensor], seconds: float) -> Any:
        """A step of one layer: what all of its candidates take."""
        own = set(layer.parameters(recurse=False))
        for parameter in self.model.parameters():
            parameter.requires_grad_(parameter in own)
        saved = {name: value.clone() for name, value in self.model.state_dict().items()}
        optimizer = _optimizer(self.model)
        probes = -(-_hybrid(self.model).subspace_dim // PARTICLE_DIM) * (PARTICLE_DIM + 1)
        Counted.done, Counted.deadline = 0, time.perf_counter() + seconds
        with timed() as taken, suppress(Enough):
            optimizer.step_batch(*data, loss_fn=nn.CrossEntropyLoss())
        self.model.load_state_dict(saved)
        done = min(Counted.done, probes)  # beside candidates it looks at the network itself
        scaled = {clock: value * probes / done for clock, value in taken.items()}
        return {**scaled, "probes": probes, "done": done, "timed": taken}


def _layers(model: nn.Module) -> Iterator[nn.Module]:
    """Modules that have parameters of their own."""
    for module in model.modules():
        if next(module.parameters(recurse=False), None) is not None:
            yield module


def _optimizer(model: nn.Module) -> PolyStepOptimizer:
    return PolyStepOptimizer(
        model,
        epsilon=TEMPERATURE,
        step_radius=STEP_RADIUS / TEMPERATURE,  # it takes numbers as multiples of the temperature
        probe_radius=PROBE_RADIUS / TEMPERATURE,
        solver="softmax",
        polytope_type="simplex",
        seed=0,
        subspace=_hybrid(model),
        subspace_particle_dim=PARTICLE_DIM,
    )


def _hybrid(model: nn.Module) -> HybridSubspace:
    return HybridSubspace.from_layout(ParamLayout.from_module(model), rank=RANK, seed=0)


if __name__ == "__main__":
    worker = Theirs()
    serve({"setup": worker.setup, "step": worker.step})
