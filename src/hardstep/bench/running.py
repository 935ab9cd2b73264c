"""Carrying out a suite: what is left, in the order of the file, on one process or several."""

import os
import signal
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from multiprocessing import active_children, get_context
from pathlib import Path
from statistics import fmean

from hardstep.bench.cells import Cell, Job, key_of
from hardstep.bench.records import Record


class Progress:
    """What is known of a suite: its records by key, what is left, and how long that may take."""

    def __init__(self, cells: Sequence[Cell], records: Sequence[Record]) -> None:
        self.cells = cells
        self.known = {key_of(record): record for record in records}
        self._todo = [cell.todo(self.known) for cell in cells]

    @property
    def total(self) -> int:
        """Runs of the suite, sweeps included."""
        return sum(cell.size for cell in self.cells)

    @property
    def left(self) -> int:
        """Runs not recorded yet."""
        return sum(map(_left, self.cells, self._todo))

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
        """Of wall-clock, from the mean of runs like those that are left."""
        like: Mapping[tuple[str, ...], list[float]] = defaultdict(list)
        for record in self.known.values():
            if "budget" in record:
                like[record["method"], record["budget"]["axis"]].append(record["seconds"])
                like[()].append(record["seconds"])
        if not like[()]:
            return 0.0
        total = 0.0
        for cell, todo in zip(self.cells, self._todo, strict=True):
            each = like[cell.method, cell.budget.axis] or like[()]
            total += _left(cell, todo) * fmean(each)
        return total / processes


def _left(cell: Cell, todo: Sequence[Job]) -> int:
    """Without knowing which options a sweep will choose: a cell does its stages in order."""
    if not todo:
        return 0
    later = {0: 0, 1: cell.size - cell.stage_size(1), 2: len(cell.seeds)}
    return len(todo) + later[todo[0].stage]


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
    with ProcessPoolExecutor(processes, get_context("spawn"), _worker) as pool:
        running: dict[Future[Record], Job] = {}
        try:
            while True:
                while len(running) < processes:
                    job = progress.next_job({other.key for other in running.values()})
                    if job is None:
                        break
                    running[pool.submit(job.run, folder)] = job
                if not running:
                    return
                for future in wait(running, return_when=FIRST_COMPLETED).done:
                    job, record = running.pop(future), future.result()
                    progress.add(record)
                    yield job, record
        finally:
            if running:
                _interrupt_workers()
            pool.shutdown(wait=True, cancel_futures=True)


def _interrupt_workers() -> None:
    for child in active_children():
        if child.pid is not None:
            os.kill(child.pid, signal.SIGINT)


def _worker() -> None:
    """One core each, and Ctrl-C from the parent alone.

    A group of its own keeps the terminal's Ctrl-C away, which would interrupt a worker a second
    time while it saves; a signal sent to the parent only, as `kill` does, is passed on as well.
    """
    import torch

    os.setpgrp()
    # A suite started in the background hands down an ignored Ctrl-C.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    torch.set_num_threads(1)
