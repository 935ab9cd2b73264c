"""How long the tiles of a step take: `python -m benchmarks.runs.worker_tiles`.

Steps of the spiking network at the paper's size (MNIST in the folder that HARDSTEP_DATA names) and
of a policy of Swimmer (MuJoCo) are evaluated here, tile by tile, on one thread, in CPU seconds. A
tile is what cannot be divided further. `benchmarks.runs.worker_model` reads the record.
"""

import json
import time
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from hardstep import PolyStep, tasks
from hardstep import nn as hard
from hardstep._files import provenance
from hardstep.data import Batches
from hardstep.distributed import Engine, Futures
from hardstep.evaluation import Candidates, Incremental, ModelObjective, Problem, own_evaluator
from hardstep.evaluation.sharing import Opened, Piece, cut_evenly, follow, share

RECORD = Path(__file__).parents[1] / "results" / "worker-tiles.json"
TASKS = {"spiking network, MNIST": ("snn", "mnist"), "Swimmer policy": ("swimmer", "digits")}
STEPS, WARM = 5, 3
FINE = 2048  # ranges that a step is asked for; those in which no tile begins are empty


class Watch:
    """An evaluator that notes how long each tile takes."""

    def __init__(self) -> None:
        self.steps: list[dict[str, Any]] = []
        self._usual = Incremental()

    def losses(self, candidates: Candidates, problem: Problem) -> Tensor:
        """One loss per candidate, (N,)."""
        inner = own_evaluator(problem.model) or self._usual
        objective = ModelObjective(problem, inner)
        began = time.process_time()
        opened = share(objective).open(candidates)
        note: dict[str, Any] = {"open": time.process_time() - began, "questions": 0, "tiles": {}}
        note["bytes"] = _ENGINE.measure(objective, candidates)

        firsts = {span.start for span in candidates.spans()}

        def answer(question: Any) -> Tensor:
            note["questions"] += 1
            found = []
            for start, stop in cut_evenly(len(candidates), FINE):
                piece, seconds = _time(opened, question, start, stop)
                if piece.start in firsts:  # it also planned its block, as every worker has to
                    piece, again = _time(opened, question, start, stop)
                    note["open"] += max(0.0, seconds - again)
                    seconds = again
                if len(piece.rows):
                    tiles = note["tiles"]
                    tiles[piece.start] = tiles.get(piece.start, 0.0) + seconds
                    found.append(piece.rows)
            return torch.cat(found)

        losses = follow(share(objective).ask(candidates), answer)
        note["evaluated"] = time.process_time() - began
        self.steps.append(note | {"candidates": len(candidates)})
        return losses


def _time(opened: Opened, question: Any, start: int, stop: int) -> tuple[Piece, float]:
    began = time.process_time()
    piece = opened.piece(question, start, stop)
    return piece, time.process_time() - began


_ENGINE: Engine = Futures(lambda: None, 1)  # type: ignore[arg-type,return-value]  # measures


def measure(name: str, data: str) -> list[dict[str, Any]]:
    """Steps of a task: what the driver, opening it and its tiles take, in seconds."""
    task, watch = tasks.find(name, data), Watch()
    model = hard.build(task.model, 0)
    opt = PolyStep(model, task.settings(task.steps), evaluator=watch)
    batches = Batches(task.data(0).train, task.batch_size, 0)
    for step in range(WARM + STEPS):
        began = time.process_time()
        opt.step(*batches.batch(0, step % len(batches)), task.loss_fn)
        note = watch.steps[-1]
        note["driver"] = time.process_time() - began - note.pop("evaluated")
    return watch.steps[WARM:]


def main() -> None:
    """Measure and record."""
    torch.set_num_threads(1)
    found = {title: measure(*names) for title, names in TASKS.items()}
    RECORD.write_text(json.dumps({"steps": found, **provenance()}) + "\n")
    for title, steps in found.items():
        for one in steps:
            tiles = one["tiles"].values()
            print(f"{title}: {one['candidates']:,} candidates, {len(tiles)} tiles, "
                  f"{sum(tiles):.4f} s, open {one['open']:.4f} s, driver {one['driver']:.4f} s, "
                  f"{one['bytes']:,} bytes, {one['questions']} questions")  # fmt: skip


if __name__ == "__main__":
    main()
