"""A step as a message: what of it workers have, and what has changed."""

import hashlib
import pickle
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor

from hardstep.distributed.jobs import Asked, PointsJob, SearchJob, Space, Target, check_closure
from hardstep.distributed.messages import VERSION, Digests, Need, Step, StepMessage, Task
from hardstep.distributed.tensors import Known, TensorTable, freeze, pack, pack_values
from hardstep.evaluation import ClosureObjective, ModelObjective

SENT_ALONG = 256 << 10  # bytes of changed tensors that travel with every tile; more is asked for
Job = SearchJob | PointsJob


class Part(NamedTuple):
    """A part of a job, packed."""

    thing: Any
    blob: bytes
    digest: bytes
    tensors: set[int]


class Written(NamedTuple):
    """A step on its way, and the tensors that it refers to."""

    step: Step
    known: dict[int, Known]
    parts: tuple[Part, ...]

    def supply(self, step: Step, task: Task, need: Need) -> Task:
        """The task with what a worker lacks."""
        values = pack_values(self.known[n] for n in need.tensors) if need.tensors else b""
        parts = tuple(part.blob for part in self.parts) if need.parts else ()
        return Task(task.key, step, parts, values)


class StepWriter:
    """Writes the steps of a run; remembers what the last one said."""

    def __init__(self) -> None:
        self._table = TensorTable()
        self._parts: tuple[Part, ...] = ()
        self._sent: dict[int, bytes] = {}  # digests of tensors in the last step

    def begin(self, asked: Asked) -> bytes:
        """What the step asks about but for candidates, which are known before all else."""
        self._table.begin()
        return pack("the step", asked._replace(asked=None, offsets=None), self._table)[0]

    def finish(self, number: int, job: Job, asked: bytes, move: Tensor | None) -> Written:
        """The rest of a step that was begun.

        Args:
            number: Of the step.
            job: What stays from step to step.
            asked: From `begin`.
            move: That was made since the last step, if nothing else changed the searched tensors.
        """
        table = self._table
        searched = self._number_tensors(job)
        self._parts, state = self._pack_parts(job)
        if isinstance(job, SearchJob) and isinstance(job.target.objective, ClosureObjective):
            _, reached = pack("the closure", job.target.objective.closure, table)
            check_closure(job.target.objective, reached, searched)
        known = table.end()
        digests = {number: one.digest for number, one in known.items()}
        before = {n: self._sent[n] for n in searched.values() if n in self._sent}
        changed = {n for n, value in digests.items() if self._sent.get(n) != value}
        follows = move is not None and len(before) == len(searched)
        fresh = [known[n] for n in changed - (set(searched.values()) if follows else set())]
        size = sum(one.tensor.numel() * one.tensor.element_size() for one in fresh)
        self._sent = digests
        message = StepMessage(
            step=number,
            threads=torch.get_num_threads(),
            parts=tuple(part.digest for part in self._parts),
            digests=Digests(digests, tuple(searched.items()), before if follows else {}),
            asked=asked,
            state={name: freeze(value) for name, value in state.items()},
            move=freeze(move) if follows and move is not None else None,
            values=pack_values(fresh) if fresh and size <= SENT_ALONG else b"",
        )
        return Written(Step(VERSION, pickle.dumps(message)), known, self._parts)

    def _pack_parts(self, job: Job) -> tuple[tuple[Part, ...], dict[str, Tensor]]:
        """The parts of a job, and the state of its subspace, which is all that changes of one."""
        state = job.space.subspace.state_dict() if isinstance(job, SearchJob) else {}
        parts, things = [], cast("tuple[Target | Space | PointsJob, ...]", job.parts)
        for number, thing in enumerate(things):
            if isinstance(thing, Space) and state and len(self._parts) > number:
                before = self._parts[number]
                if isinstance(before.thing, Space) and before.thing.subspace is thing.subspace:
                    self._table.keep(before.tensors)
                    parts.append(before)
                    continue
            blob, reached = pack(thing.title, thing, self._table)
            parts.append(Part(thing, blob, hashlib.blake2b(blob).digest(), reached))
        return tuple(parts), state

    def _number_tensors(self, job: Job) -> dict[str, int]:
        """The searched tensors by number; others of a model are looked at, too."""
        if isinstance(job, PointsJob):
            return {}
        objective = job.target.objective
        if isinstance(objective, ModelObjective):
            model = objective.problem.model
            for tensor in (*model.parameters(), *model.buffers()):
                self._table.number(tensor, changing=True)
        return {name: self._table.number(t, changing=True) for name, t in job.base.items()}
