"""The worker that times the authors' package on the networks of the second table.

As in `theirs`: its documented interface, and everything not named here at its default. It starts
from our weights after their ten steps, with our temperature and our radii.

A step of theirs takes minutes on some networks. One that does not end in time is timed again layer
by layer, by steps that search one layer only, and each of these ends when its share of the time is
over; the time per candidate of a layer, times its candidates in a whole step, is added up. (The
first candidates of a whole step would not do: they belong to the first layer, and those of later
ones cost less.)
"""

import time
from contextlib import suppress
from typing import Any

import torch
from polystep import HybridSubspace, ParamLayout, PolyStepOptimizer
from torch import Tensor, nn

from benchmarks.step import networks
from benchmarks.step.batches import READ
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
        """Called for the network itself, which is no candidate."""
        return values.view_as(values)

    @staticmethod
    def setup_context(context: Any, inputs: Any, output: Any) -> None:
        """Nothing is kept: nobody differentiates."""

    @staticmethod
    def vmap(info: Any, axes: Any, values: Tensor) -> tuple[Tensor, Any]:
        """Called once per chunk of candidates.

        Raises:
            Enough: The time is over.
        """
        Counted.done += info.batch_size
        if time.perf_counter() > Counted.deadline:
            raise Enough
        return values.view_as(values), axes[0]


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
        """A step, or, where it takes longer than these seconds, what it would take."""
        data = READ[self.row.reads](seed, BATCH)
        whole = self._search(self.model, data, seconds)
        if whole["ended"]:
            return {**whole["timed"], "probes": whole["probes"], "share": 1.0}
        layers = [module for module in self.model.modules() if _has_own(module)]
        found = [self._search(layer, data, seconds / len(layers)) for layer in layers]
        total = {clock: sum(one[clock] for one in found) for clock in whole["timed"]}
        share = sum(one["done"] for one in found) / sum(one["probes"] for one in found)
        return {**total, "probes": whole["probes"], "share": share, "layers": found}

    def _search(self, part: nn.Module, data: tuple[Tensor, Tensor], seconds: float) -> Any:
        """A step that searches a part of the network: what all of its candidates take."""
        own = set(part.parameters(recurse=part is self.model))
        for parameter in self.model.parameters():
            parameter.requires_grad_(parameter in own)
        saved = {name: value.clone() for name, value in self.model.state_dict().items()}
        optimizer, ended = _optimizer(self.model), False
        probes = -(-_hybrid(self.model).subspace_dim // PARTICLE_DIM) * (PARTICLE_DIM + 1)
        Counted.done, Counted.deadline = 0, time.perf_counter() + seconds
        with timed() as taken, suppress(Enough):
            optimizer.step_batch(*data, loss_fn=nn.CrossEntropyLoss())
            ended = True
        self.model.load_state_dict(saved)
        done = probes if ended else Counted.done
        scaled = {clock: value * probes / done for clock, value in taken.items()}
        return {**scaled, "probes": probes, "done": done, "ended": ended, "timed": taken}


def _has_own(module: nn.Module) -> bool:
    """Whether parameters belong to a module itself."""
    return next(module.parameters(recurse=False), None) is not None


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
