"""The worker that times hardstep, through its public interface.

A step is `propose`, `evaluate` and `advance`, timed apart and together; `PolyStep.step` does the
same. Weights are put back before every step, so that each repeat is a step from the initial
network: a step by the paper's long radii can saturate units, and a saturated unit costs our
evaluator next to nothing.
"""

import time
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.step import limits
from benchmarks.step.batches import batch, origin
from benchmarks.step.models import build
from benchmarks.step.profile import timed_parts
from benchmarks.step.records import versions
from benchmarks.step.rows import BY_NAME, PAPER, Row
from benchmarks.step.wire import serve, timed
from hardstep.evaluation import Batched, Evaluator
from hardstep.geometry import Simplex
from hardstep.optim import PlanReuse, PolyStep, Proposal, Settings, presets
from hardstep.subspaces import Full, LayerWise, RowWise, Subspace
from hardstep.tasks import architectures

PILOT = 0.01  # share of the probes that tells how long the batched evaluator would take
GALLERY = {
    "snn": architectures.spiking_mlp,
    "snn-once": architectures.spiking_mlp,
    "mlp": architectures.mlp,
    "int8": architectures.int8_mlp,
    "staircase": architectures.staircase_mlp,
    "argmax": architectures.argmax_net,
    "moe": architectures.moe_net,
}


class Ours:
    """The state between requests."""

    row: Row
    batch_size: int
    optimizer: PolyStep

    def setup(
        self, name: str, threads: int, batch_size: int, gallery: bool = False
    ) -> dict[str, Any]:
        """Build the optimizer of a row, for its plain model or the one of `hardstep.tasks`."""
        torch.set_num_threads(threads)
        self.row, self.batch_size = BY_NAME[name], batch_size
        self.loss_fn = nn.CrossEntropyLoss()
        self.model = build(self.row.task)
        if gallery:
            self.model = _gallery(self.row.task, self.model)
        self.initial = {key: value.clone() for key, value in self.model.state_dict().items()}
        _check_against_gallery(self.row, self.model)
        started = time.perf_counter()
        self.optimizer = PolyStep(self.model, _settings(self.row), seed=0)
        proposal = self.optimizer.propose()
        return {
            "setup_seconds": time.perf_counter() - started,
            "parameters": sum(p.numel() for p in self.model.parameters()),
            "pictures": origin(),
            "probes": self.optimizer.evaluations_per_step,
            "subspace": _subspace_name(self.row),
            "coordinates": self.optimizer.subspace.dim,
            "versions": versions(),
            "temperature": proposal.temperature,
            "step_radius": proposal.reach.step_radius,
            "probe_radius": proposal.reach.probe_radius,
        }

    def step(self, seed: int, batch_size: int | None = None) -> dict[str, Any]:
        """One step from the initial weights, and what its parts took."""
        self.model.load_state_dict(self.initial)
        data = batch(seed, batch_size or self.batch_size, self.row.classes)
        with timed() as total:
            with timed() as proposing:
                proposal = self.optimizer.propose()
            with timed() as evaluating:
                losses = self.optimizer.evaluate(proposal, *data, self.loss_fn)
            with timed() as advancing:
                loss = self.optimizer.advance(proposal, losses)
        parts = {"propose": proposing, "evaluate": evaluating, "advance": advancing}
        return {**total, "parts": parts, "loss": loss, "path": _path(self.optimizer.evaluator)}

    def batched(self, seed: int, seconds: float) -> dict[str, Any]:
        """A step's losses by the plain batched evaluator, on a share that fits the time."""
        self.model.load_state_dict(self.initial)
        data = batch(seed, self.batch_size, self.row.classes)
        # Bases are as costly to draw as a step, and the same for every evaluator.
        evaluator, self.optimizer.evaluator = self.optimizer.evaluator, Batched()
        try:
            pilot = self._partly(PILOT, data)
            share = min(1.0, seconds / (pilot["wall"] / pilot["share"]))
            found = self._partly(share, data) if share > 2 * PILOT else pilot
        finally:
            self.optimizer.evaluator = evaluator
        return {
            "wall": found["wall"] / found["share"],
            "cpu": found["cpu"] / found["share"],
            "share": found["share"],
        }

    def part(self, seed: int, share: float) -> dict[str, float]:
        """The evaluation of a share of a step's probes."""
        self.model.load_state_dict(self.initial)
        return self._partly(share, batch(seed, self.batch_size, self.row.classes))

    def _partly(self, share: float, data: tuple[Tensor, Tensor]) -> dict[str, float]:
        proposal = thinned(self.optimizer.propose(), share)
        with timed() as taken:
            self.optimizer.evaluate(proposal, *data, self.loss_fn)
        return {**taken, "share": len(proposal.rows) / self.optimizer.num_particles}

    def profile(self, seed: int) -> dict[str, Any]:
        """A step, and the seconds of its parts."""
        with timed_parts() as spent:
            step = self.step(seed)
        outside = step["parts"]["propose"]["wall"] + step["parts"]["advance"]["wall"]
        spent["outside evaluation"] = outside
        spent["other"] = step["wall"] - sum(spent.values())
        return {**step, "spent": spent}

    def limit(self, seed: int) -> dict[str, Any]:
        """What the step must at least do, and what this machine can do."""
        self.model.load_state_dict(self.initial)
        inputs, target = batch(seed, self.batch_size, self.row.classes)
        work = limits.required(self.optimizer, self.model, inputs, target, self.loss_fn)
        return {**work, **limits.peaks()}


def thinned(proposal: Proposal, share: float) -> Proposal:
    """A proposal that asks for every k-th particle only, so that all tensors are represented."""
    wanted = max(1, round(share * len(proposal.rows)))
    kept = torch.linspace(0, len(proposal.rows) - 1, wanted).round().long()
    return proposal._replace(rows=proposal.rows[kept])


def _settings(row: Row) -> Settings:
    """The paper's, without plan reuse, in the row's subspace."""
    others = {"mlp": presets.mnist, "snn-once": presets.snn}
    preset = others.get(row.task) or getattr(presets, row.task)
    settings: Settings = preset(PAPER[row.task].steps)
    rules = tuple(rule for rule in settings.rules if not isinstance(rule, PlanReuse))
    return settings.changed(
        subspace=_subspace(row), polytope=Simplex(row.particle_dim), rules=rules
    )


def _subspace(row: Row) -> Subspace:
    if row.kind == "full":
        return Full()
    return LayerWise(row.rank) if row.kind == "layer-wise" else RowWise(row.rank)


def _subspace_name(row: Row) -> str:
    name = type(_subspace(row)).__name__
    return f"{name}()" if row.kind == "full" else f"{name}({row.rank})"


def _path(evaluator: Evaluator) -> str:
    return str(getattr(evaluator, "note", ""))


def _check_against_gallery(row: Row, model: nn.Module) -> None:
    """The plain model must be the network of `hardstep.tasks`, whatever its parameters' names."""
    known = _gallery(row.task, model)
    inputs, _ = batch(0, 64, row.classes)
    with torch.no_grad():
        torch.testing.assert_close(model(inputs), known(inputs))


def _gallery(task: str, model: nn.Module) -> nn.Module:
    """The network of `hardstep.tasks` with the parameters of a plain one."""
    known: nn.Module = GALLERY[task]()
    with torch.no_grad():
        for mine, given in zip(known.parameters(), model.parameters(), strict=True):
            mine.copy_(given)
    return known


if __name__ == "__main__":
    worker = Ours()
    serve(
        {
            "setup": worker.setup,
            "step": worker.step,
            "batched": worker.batched,
            "part": worker.part,
            "limit": worker.limit,
            "profile": worker.profile,
        }
    )
