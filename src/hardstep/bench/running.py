"""Carrying out a suite: what is left, in the order of the file, on one process or several."""

import os
import signal
import threading
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from contextlib import contextmanager
from multiprocessing import active_children, get_context
from multiprocessing.process import BaseProcess
from multiprocessing.synchronize import Event
from pathlib import Path
from statistics import fmean
from types import FrameType

from hardstep import tasks
from hardstep.bench import methods
from hardstep.bench.cells import Cell, Job, key_of
from hardstep.bench.records import Record
from hardstep.tasks import dry_run

HELD = {signal.SIGINT, signal.SIGTERM}  # while workers are started


class Progress:
    """What is known of a suite: its records by key, what is left, and how long that may take."""

    def __init__(self, cells: Sequence[Cell], records: Sequence[Record]) -> None:
        self.cells = cells
        self.known = {key: record for record in records if (key := key_of(record))}
        self._todo = [cell.todo(self.known) for cell in cells]

    @property
    def total(self) -> int:
        """Runs of the suite, sweeps included."""
        return sum(cell.size for cell in self.cells)

    @property
    def left(self) -> int:
        """Runs not recorded yet."""
        return sum(map(_left, self.cells, self._todo))

    @property
    def unfinished(self) -> list[Cell]:
        """Cells with runs not recorded yet."""
        return [cell for cell, todo in zip(self.cells, self._todo, strict=True) if todo]

    def next_job(self, busy: set[str]) -> Job | None:
        """The first job in the order of the suite that can be run now and is not busy."""
        for jobs in self._todo:
            for job in jobs:
                if job.key not in busy:
                    return job
        return None

    def add(self, record: Record) -> None:
        """Take in a new record; only cells that wait for it have something else to do now."""
        key = key_of(record)
        self.known[key] = record
        for index, jobs in enumerate(self._todo):
            if any(job.key == key for job in jobs):
                self._todo[index] = self.cells[index].todo(self.known)

    def seconds_left(self, processes: int) -> float:
        """Of wall-clock, from what a unit of budget took in the runs that are most alike."""
        rates: dict[Likeness, list[float]] = defaultdict(list)
        runs = [record for record in self.known.values() if "seconds" in record]
        for record in runs:
            axis, amount = record["budget"]["axis"], record["budget"]["amount"]
            for likeness in _likenesses(record["task"], record["method"], axis):
                rates[likeness].append(record["seconds"] / amount)
        total = 0.0
        for cell, todo in zip(self.cells, self._todo, strict=True):
            alike = _likenesses(cell.task, cell.method, cell.budget.axis)
            known = next((rates[likeness] for likeness in alike if likeness in rates), None)
            if known:
                total += fmean(known) * _amount_left(cell, todo)
            elif runs:  # of other budgets, so that a run is all there is to count by
                total += fmean(record["seconds"] for record in runs) * _left(cell, todo)
        return total / processes


Likeness = tuple[str, ...]


def _likenesses(task: str, method: str, axis: str) -> tuple[Likeness, ...]:
    """What runs may have in common, most first; without a common axis there is no rate."""
    return (axis, method, task), (axis, method), (axis,)


def _left(cell: Cell, todo: Sequence[Job]) -> int:
    """Without knowing which options a sweep will choose: a cell does its stages in order."""
    return len(todo) + sum(num for num, _ in _later(cell, todo))


def _amount_left(cell: Cell, todo: Sequence[Job]) -> float:
    """The same in units of budget."""
    now = sum(job.budget.amount for job in todo)
    return now + sum(num * amount for num, amount in _later(cell, todo))


def _later(cell: Cell, todo: Sequence[Job]) -> list[tuple[int, float]]:
    """Number and budget of the runs that follow those to do now."""
    stage = todo[0].stage if todo else 0
    reported = (len(cell.seeds), cell.budget.amount)
    if stage == 1:
        return [(cell.stage_size(2), cell.sweep_amount), reported]
    return [reported] if stage == 2 else []


def rehearse(cells: Sequence[Cell]) -> None:
    """Refuse before the first run what would stop a suite in the middle.

    Raises:
        ConfigError: A method cannot be built for its task with its options, or a task of one's own
            fails on its first batch.
    """
    wanted = dict.fromkeys(
        (cell.task, cell.data, cell.method, options)
        for cell in cells
        for options in (cell.first_stage if cell.sweep and cell.options else [cell.options])
    )
    for task, data, method, options in wanted:
        methods.rehearse(tasks.find(task, data), method, dict(options))
    seeds = {(cell.task, cell.data): (*cell.sweep, *cell.seeds)[0] for cell in cells}
    for (task, data), seed in seeds.items():
        dry_run.try_task(tasks.find(task, data), seed)


def carry_out(
    progress: Progress, folder: Path | None = None, processes: int = 1
) -> Iterator[tuple[Job, Record]]:
    """Run what is left and hand out records as they come; several processes take a core each.

    Ctrl-C lets runs save themselves into the folder, from where the next call goes on.
    """
    if processes == 1:
        while (job := progress.next_job(set())) is not None:
            record = job.run(folder)
            progress.add(record)
            yield job, record
        return
    others, context = set(active_children()), get_context("spawn")
    stopping = context.Event()
    with ProcessPoolExecutor(processes, context, _start_worker, (stopping,)) as pool:
        running: dict[Future[Record], Job] = {}
        try:
            while True:
                while len(running) < processes:
                    job = progress.next_job({other.key for other in running.values()})
                    if job is None:
                        break
                    with _interrupts_held():
                        running[pool.submit(_run, job, folder)] = job
                if not running:
                    return
                for future in wait(running, return_when=FIRST_COMPLETED).done:
                    job, record = running.pop(future), future.result()
                    progress.add(record)
                    yield job, record
        finally:
            stopping.set()
            _interrupt(set(active_children()) - others)
            pool.shutdown(wait=True, cancel_futures=True)


def _interrupt(workers: Iterable[BaseProcess]) -> None:
    for worker in workers:
        if worker.pid is not None:
            os.kill(worker.pid, signal.SIGINT)


@contextmanager
def _interrupts_held() -> Iterator[None]:
    """What is started in here does not hear Ctrl-C or `kill` until it asks to; we do afterwards.

    The first submissions start workers. One that dies while it starts would make the pool end the
    others in the middle of saving, and one that is started when the pool has not noted it yet
    would never be told to end. Blocking is for the workers, who inherit it; to us it is not
    enough, for any other thread (of a linear algebra library, say) may take the signal instead.
    """
    heard: list[int] = []
    holding = True
    kept = {number: signal.getsignal(number) for number in HELD}
    ours = {n: handler for n, handler in kept.items() if callable(handler)} if _is_main() else {}

    def hear(number: int, frame: FrameType | None) -> None:
        if holding:
            heard.append(number)
        else:  # while handlers are put back, which another signal may cut short
            ours[signal.Signals(number)](number, frame)

    for number in ours:
        signal.signal(number, hear)
    before = signal.pthread_sigmask(signal.SIG_BLOCK, HELD)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        holding = False
        for number, handler in ours.items():
            signal.signal(number, handler)
        for first in heard[:1]:
            signal.raise_signal(first)


def _is_main() -> bool:
    """Whether this thread is the one that may set handlers."""
    return threading.current_thread() is threading.main_thread()


_stopping: Event  # a worker's: set before the interrupts are sent


def _start_worker(stopping: Event) -> None:
    """One core each, and Ctrl-C from the parent alone, for runs alone.

    A group of its own keeps the terminal's Ctrl-C away, which would interrupt a worker a second
    time while it saves; a signal sent to the parent only, as `kill` does, is passed on as well.
    """
    global _stopping
    import torch

    os.setpgrp()
    for number in HELD:
        signal.signal(number, signal.SIG_IGN)  # what has come so far; the event says it, too
    signal.pthread_sigmask(signal.SIG_UNBLOCK, HELD)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    torch.set_num_threads(1)
    _stopping = stopping


def _run(job: Job, folder: Path | None) -> Record:
    """A run in a worker; one that begins after the interrupts were sent stops at once."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        if _stopping.is_set():
            raise KeyboardInterrupt
        return job.run(folder)
    finally:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
