"""A worker: keeps model and data of a run, and evaluates tiles.

`evaluate` is all that an engine calls. It may find a process that has never seen the run, or has
missed steps; then it answers with what it needs, and gets the tile again together with that.
"""

import os
import pickle
import signal
import socket
import time
from collections import OrderedDict
from contextlib import suppress
from multiprocessing import parent_process
from multiprocessing.connection import wait
from threading import RLock, Thread
from typing import Any

import torch
from torch import Tensor

from hardstep.distributed.jobs import Asked, PointsJob, SearchJob, join_parts
from hardstep.distributed.messages import (
    VERSION,
    Ahead,
    Answer,
    Misfit,
    Need,
    Question,
    StepMessage,
    Task,
)
from hardstep.distributed.tensors import digest, thaw, unpack, unpack_values
from hardstep.errors import WorkerError
from hardstep.evaluation.sharing import Opened, Unfit

RUNS = 2  # that a process keeps
Reply = Answer | Need | Misfit
Searched = tuple[tuple[str, int], ...]  # tensors by name and number


class _Run:
    """What a process knows of a run."""

    def __init__(self, worker: str) -> None:
        self.worker = worker
        self.tensors: dict[int, Tensor] = {}
        self.digests: dict[int, bytes] = {}
        self.parts: dict[bytes, Any] = {}
        self.job: SearchJob | PointsJob | None = None
        self.message: StepMessage | None = None
        self.searched: Searched = ()
        self.asked = Asked(None)  # without candidates
        self.objective: Any = None
        self.opened: Opened | None = None
        self.question: Any = None
        self.prepared = 0.0  # seconds that an announced step has taken
        self.moved_after = 0  # the step whose weights were moved before the next one was known
        self.prepared_for: tuple[bytes, tuple[bytes, ...], dict[int, bytes]] | None = None
        self.drifted = False  # a move did not lead to the driver's weights, which are on their way

    def take_step(self, message: StepMessage, task: Task) -> Need | None:
        """Bring everything to the state of a step, or say what is missing."""
        self.message = self.opened = None
        moved = self._follow_move(message) or self.moved_after > 0
        for blob in filter(None, (message.values, task.values)):
            self._take_values(unpack_values(blob))
        wanted = message.digests.now
        missing = tuple(n for n, known in wanted.items() if self.digests.get(n) != known)
        apart = any(known not in self.parts for known in message.parts)
        if missing or (apart and not task.parts):
            self.drifted |= moved and bool(missing)
            return Need(task.key, False, apart, missing, self.drifted, self.worker)
        self.drifted, self.moved_after = False, 0
        if apart:
            for known, blob in zip(message.parts, task.parts, strict=True):
                if known not in self.parts:
                    self.parts[known] = unpack(blob, self.tensors)
        self.parts = {known: self.parts[known] for known in message.parts}
        self.job = join_parts(tuple(self.parts.values()))
        if isinstance(self.job, SearchJob) and message.state:
            state = {name: thaw(value) for name, value in message.state.items()}
            self.job.space.subspace.load_state_dict(state)
        torch.set_num_threads(message.threads)
        if not self._is_prepared(message):
            self._take_batch(message.asked)
        self.message, self.searched = message, message.digests.searched
        for number in self.tensors.keys() - wanted.keys():
            del self.tensors[number], self.digests[number]
        return None

    def look_ahead(self, ahead: Ahead) -> None:
        """Do what can be done before a step is known; `take_step` looks at all of it again."""
        job = self.job
        if not isinstance(job, SearchJob):
            return
        if self.message is not None and self.message.step == ahead.after:
            self.moved_after = ahead.after
            self.message = self.opened = None  # tiles that come late would meet other weights
            move = thaw(ahead.move)
            self._move(job, move, self.searched)
            if ahead.step is not None:
                job.commit(ahead.step, move)
        if self.moved_after == ahead.after and ahead.asked:
            torch.set_num_threads(ahead.threads)
            with suppress(Exception):
                self._take_batch(ahead.asked)
                self.prepare()
                self.prepared_for = ahead.asked, tuple(self.parts), dict(self.digests)

    def prepare(self) -> None:
        """Do what can be done before candidates are known; where it fails, `open` fails again."""
        if self.job is not None and self.opened is None:
            with suppress(Exception), torch.no_grad():
                self.job.prepare(self.objective, self.asked)

    def _take_batch(self, asked: bytes) -> None:
        assert self.job is not None
        self.asked = unpack(asked, self.tensors)
        self.objective = self.job.place(self.asked)

    def _is_prepared(self, message: StepMessage) -> bool:
        """Whether this very step was prepared for, with the same model and the same numbers."""
        found, self.prepared_for = self.prepared_for, None
        if found is None:
            return False
        asked, parts, digests = found
        same = asked == message.asked and parts == message.parts
        return same and message.digests.now.items() <= digests.items()

    def open(self, question: Question) -> None:
        """Take the candidates."""
        assert self.job is not None
        asked = self.asked
        if question.asked is not None and question.offsets is not None:
            asked = asked._replace(asked=thaw(question.asked), offsets=thaw(question.offsets))
        self.question, self.opened = question.question, self.job.open(self.objective, asked)

    def _follow_move(self, message: StepMessage) -> bool:
        """Make the driver's last move; false if this is not where it was made."""
        digests = message.digests
        here = digests.before.items() <= self.digests.items() and self.job is not None
        if message.move is None or not here or digests.now.items() <= self.digests.items():
            return False
        job = self.job
        assert isinstance(job, SearchJob)
        self._move(job, thaw(message.move), digests.searched)
        return True

    def _move(self, job: SearchJob, move: Tensor, searched: Searched) -> None:
        for _, number in searched:
            self.digests.pop(number, None)  # should the move fail half-way
        job.follow(move)
        for name, number in searched:
            self.digests[number] = digest(job.base[name])

    def _take_values(self, values: dict[int, Tensor]) -> None:
        for number, value in values.items():
            own = self.tensors.get(number)
            if own is not None and own.shape == value.shape and own.dtype == value.dtype:
                own.detach().copy_(value)  # objects that hold it see it
            else:
                self.tensors[number] = value
            self.digests[number] = digest(value)


class Worker:
    """A process's memory of runs, and the tiles it evaluates.

    Args:
        name: In messages and counts; the process if left out.
    """

    def __init__(self, name: str | None = None) -> None:
        self.name = name or name_process()
        self._runs: OrderedDict[str, _Run] = OrderedDict()
        self._lock = RLock()  # an executor may have threads

    def evaluate(self, task: Task) -> Reply:
        """The rows of a tile, or what is missing to find them.

        Raises:
            WorkerError: Driver and worker are not of one version.
        """
        with self._lock:
            run = self._runs.setdefault(task.key.run, _Run(self.name))
            self._runs.move_to_end(task.key.run)
            while len(self._runs) > RUNS:
                self._runs.popitem(last=False)
            return self._evaluate(run, task)

    def _evaluate(self, run: _Run, task: Task) -> Reply:
        began, key = time.perf_counter(), task.key
        if task.ahead is not None:
            run.look_ahead(task.ahead)
            run.prepared += time.perf_counter() - began
            return Answer(key, key.start, (0,), b"", 0.0, 0.0, self.name)
        need = self._follow(run, task)
        if need is not None:
            return need
        if key.start == key.stop:
            run.prepare()
            run.prepared += time.perf_counter() - began
            return Answer(key, key.start, (0,), b"", 0.0, 0.0, self.name)
        if run.opened is None:
            if not task.step.question:
                return Need(key, True, False, (), False, self.name)
            run.open(pickle.loads(task.step.question))
        assert run.opened is not None
        before, run.prepared = run.prepared, 0.0
        opening = before + time.perf_counter() - began
        try:
            with torch.no_grad():
                piece = run.opened.piece(run.question, key.start, key.stop)
        except Unfit as unfit:
            return Misfit(key, unfit.block, unfit.tier, unfit.reason, self.name)
        rows = piece.rows.detach().double().cpu().numpy()
        spent = before + time.perf_counter() - began
        return Answer(key, piece.start, rows.shape, rows.tobytes(), spent, opening, self.name)

    def _follow(self, run: _Run, task: Task) -> Need | None:
        """Bring a run to the step of a tile, or say what is missing."""
        if run.message is not None and run.message.step == task.key.step:
            return None
        version, message, _ = task.step
        if version != VERSION:
            raise WorkerError(
                f"the driver runs hardstep {version} and worker {self.name} has {VERSION}; "
                "install the same versions on both"
            )
        if not message:
            return Need(task.key, True, False, (), False, self.name)
        return run.take_step(pickle.loads(message), task)


def name_process() -> str:
    """This process, in a word."""
    return f"{socket.gethostname()}:{os.getpid()}"


def end_with_parent() -> None:
    """Let this process end when the one that started it does, however it does, and not before.

    For the `initializer` of a process pool. Its processes would wait for tiles for ever when the
    driver is killed; and Ctrl-C, which reaches them all, is the driver's to answer.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = parent_process()
    if parent is not None:
        watch = Thread(target=_end_after, args=(parent.sentinel,), daemon=True)
        watch.start()


def _end_after(sentinel: int) -> None:
    wait([sentinel])
    os._exit(1)


_DEVICES: list[Any] = []  # what this process has been prepared with


def keep_device(made: Any) -> None:
    """Let objectives that run in this process find a device."""
    _DEVICES[:] = [made]


def device() -> Any:
    """What `prepare` has returned in this worker: the board that an objective talks to.

    Raises:
        WorkerError: This process has not been prepared.
    """
    if not _DEVICES:
        raise WorkerError(
            f"process {name_process()} has no device; give Ray a function that opens one, as "
            "prepare="
        )
    return _DEVICES[0]


_HERE: list[Worker] = []  # this process's, once it has been asked


def evaluate(task: Task) -> Reply:
    """`Worker.evaluate` of this process."""
    if not _HERE:
        _HERE.append(Worker())
    return _HERE[0].evaluate(task)
