"""The worker that times hardstep on the networks of the second table.

A network takes ten steps of the default settings first, once: its weights are kept. Then forward
passes and steps are timed in turn, each step from the same weights. The blocks of a step are timed
apart, from outside, while the step runs: what a block takes is the time of its candidates, without
the recorded forward pass that all blocks share.
"""

import hashlib
import time
from pathlib import Path
from statistics import median
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.step import batches, limits, network_activity, networks, token_networks
from benchmarks.step.batches import READ, origin
from benchmarks.step.network_blocks import RECORDING, counted_operations, timed_blocks
from benchmarks.step.network_rows import (
    BATCH,
    BY_NAME,
    CALIBRATION,
    PARTICLE_DIM,
    PROBE_RADIUS,
    RANK,
    STEP_RADIUS,
    TEMPERATURE,
    TRAINED,
    Network,
)
from benchmarks.step.ours import thinned
from benchmarks.step.records import versions
from benchmarks.step.wire import serve, timed
from hardstep.evaluation import Batched
from hardstep.optim import PolyStep, Settings
from hardstep.subspaces import RowWise

FIRST = 10_000  # seed of the batches of the ten steps; repeats count from 0
PASSES, SECONDS = 5, 0.5  # a forward pass is timed so often, or for so long
PILOT = 0.01  # share of the candidates that tells how long the batched evaluator would take


class Ours:
    """The state between requests."""

    row: Network
    optimizer: PolyStep

    def setup(self, name: str, threads: int, folder: str) -> dict[str, Any]:
        """Build a row's network, with its weights after ten steps, which a folder keeps."""
        torch.set_num_threads(threads)
        self.row, self.loss_fn = BY_NAME[name], nn.CrossEntropyLoss()
        self.model = build(self.row)
        _check_defaults(_optimizer(self.model).settings)
        weights = Path(folder) / f"{name}-{_digest()}.pt"
        trained = 0.0 if weights.exists() else self._train(weights)
        self.initial = torch.load(weights)
        self.model.load_state_dict(self.initial)
        self.optimizer = _optimizer(self.model)
        return {
            "training_seconds": trained,
            "weights": str(weights),
            "parameters": sum(p.numel() for p in self.model.parameters()),
            "pictures": origin(),
            "probes": self.optimizer.evaluations_per_step,
            "active": network_activity.measure(self.model, self._batch(FIRST + TRAINED)[0]),
            "versions": versions(),
        }

    def _train(self, weights: Path) -> float:
        """Take the ten steps and keep the weights; returns the seconds."""
        optimizer = _optimizer(self.model)
        with timed() as taken:
            for step in range(self.row.trained):
                optimizer.step(*self._batch(FIRST + step), self.loss_fn)
        weights.parent.mkdir(parents=True, exist_ok=True)
        unfinished = weights.with_suffix(".partial")
        torch.save(self.model.state_dict(), unfinished)
        unfinished.replace(weights)
        return taken["wall"]

    def forward(self, seed: int) -> dict[str, float]:
        """The median of a few plain forward passes with the loss."""
        data = self._restore(seed)
        found: list[dict[str, float]] = []
        began = time.perf_counter()
        while len(found) < PASSES or time.perf_counter() - began < SECONDS:
            with torch.no_grad(), timed() as taken:
                self.loss_fn(self.model(data[0]), data[1])
            found.append(taken)
        middle = {clock: median(one[clock] for one in found) for clock in ("wall", "cpu")}
        return {**middle, "passes": len(found)}

    def step(self, seed: int) -> dict[str, Any]:
        """One step from the same weights, and what its blocks took."""
        data = self._restore(seed)
        with timed_blocks() as blocks, timed() as taken:
            loss = self.optimizer.step(*data, self.loss_fn)
        named = {self._names(block): clocks for block, clocks in blocks.items()}
        note = str(getattr(self.optimizer.evaluator, "note", ""))
        probes = self._count_probes(data[0])
        return {**taken, "loss": loss, "blocks": named, "path": note, "probes": probes}

    def _count_probes(self, inputs: Tensor) -> int:
        """Of a step; of a table's rows, those that occur in the batch."""
        total = self.optimizer.evaluations_per_step
        if self.row.searched != "embedding":
            return total
        rows = self.model.get_submodule("embedding").num_embeddings
        return total * len(inputs.unique()) // int(rows)  # type: ignore[call-overload]

    def explain(self, seed: int) -> dict[str, Any]:
        """Tier, reason and operations of every block, and of a forward pass.

        `explain` counts what some particles take; here all candidates of a step are counted. Rows
        of a table that do not occur in the batch take nothing, and count for nothing.
        """
        data = self._restore(seed)
        table = self.optimizer.explain(*data, self.loss_fn)
        searched = self._count_probes(data[0])
        with counted_operations() as counted:
            self.optimizer.evaluate(self.optimizer.propose(), *self._batch(seed), self.loss_fn)
        blocks: dict[str, dict[str, Any]] = {}
        for one in table.parameters:
            known = {
                "tier": one.path,
                "reason": one.reason,
                "probes": one.probes,
                "operations": counted.get(one.block, one.cost.operations)
                * max(1.0, one.probes / searched),
                "shapes": [],
            }
            blocks.setdefault(self._names(one.block), known)["shapes"].append(one.shape)
        return {"forward": table.forward.operations, "blocks": blocks, "memory": table.memory}

    def batched(self, seed: int, seconds: float) -> dict[str, Any]:
        """A step's losses by the plain batched evaluator, on a share that fits the time."""
        data = self._restore(seed)
        evaluator, self.optimizer.evaluator = self.optimizer.evaluator, Batched()
        try:
            self._partly(PILOT, data)  # the first one asks for memory
            pilot = self._partly(PILOT, data)
            share = min(1.0, seconds * pilot["share"] / pilot["wall"])
            found = self._partly(share, data) if share > 2 * PILOT else pilot
        finally:
            self.optimizer.evaluator = evaluator
        share = found["share"]
        return {"wall": found["wall"] / share, "cpu": found["cpu"] / share, "share": share}

    def peaks(self) -> dict[str, float]:
        """What this machine can do."""
        return limits.peaks()

    def _restore(self, seed: int) -> tuple[Tensor, Tensor]:
        """Put the weights back; a batch."""
        self.model.load_state_dict(self.initial)
        return self._batch(seed)

    def _batch(self, seed: int) -> tuple[Tensor, Tensor]:
        return READ[self.row.reads](seed, BATCH)

    def _partly(self, share: float, data: tuple[Tensor, Tensor]) -> dict[str, float]:
        proposal = thinned(self.optimizer.propose(), share)
        with timed() as taken:
            self.optimizer.evaluate(proposal, *data, self.loss_fn)
        return {**taken, "share": len(proposal.rows) / self.optimizer.num_particles}

    def _names(self, block: int) -> str:
        """The tensors of a block; nothing for the recorded forward pass."""
        if block == RECORDING:
            return ""
        return ", ".join(self.optimizer.subspace.blocks[block].names)


def build(row: Network) -> nn.Module:
    """A row's network before its ten steps."""
    model = networks.build(row.network, READ[row.reads](FIRST - 1, CALIBRATION)[0])
    for name, parameter in model.named_parameters():
        searched = name.startswith(row.searched) and not name.startswith(row.left_out)
        parameter.requires_grad_(searched)
    return model.train(row.training)


def _optimizer(model: nn.Module) -> PolyStep:
    return PolyStep(model, subspace=RowWise(rank=RANK), seed=0)


def _check_defaults(settings: Settings) -> None:
    """The rows must name our default settings, which the other package is given."""
    temperature, reach = settings.reach_at(0)
    found = (temperature, reach.step_radius, reach.probe_radius, settings.polytope.dim)
    wanted = (TEMPERATURE, STEP_RADIUS, PROBE_RADIUS, PARTICLE_DIM)
    if found != wanted:
        raise ValueError(f"the default settings are {found}, and network_rows has {wanted}")


def _digest() -> str:
    """Of what the weights after ten steps depend on, beside what our tests keep as it is."""
    digest = hashlib.sha256(f"{Settings()} {RANK} {TRAINED} {FIRST} {BATCH} {origin()}".encode())
    for module in (networks, token_networks, batches):
        digest.update(Path(str(module.__file__)).read_bytes())
    return digest.hexdigest()[:12]


if __name__ == "__main__":
    worker = Ours()
    serve(
        {
            "setup": worker.setup,
            "forward": worker.forward,
            "step": worker.step,
            "explain": worker.explain,
            "batched": worker.batched,
            "peaks": worker.peaks,
        }
    )
