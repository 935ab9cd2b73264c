"""Carrying out jobs: what is left, in the order of the suite, on one process, several or Ray."""

import os
import signal
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import replace
from multiprocessing import active_children, get_context
from multiprocessing.process import BaseProcess
from multiprocessing.synchronize import Event
from pathlib import Path
from queue import SimpleQueue
from types import FrameType

from hardstep import tasks
from hardstep.bench.cluster import share_on_ray
from hardstep.bench.methods import check_axis, check_method
from hardstep.bench.progress import Progress
from hardstep.bench.records import Record
from hardstep.bench.runs import Job
from hardstep.bench.tuning import Sweep
from hardstep.tasks import dry_run

INTERRUPTS = {signal.SIGINT, signal.SIGTERM}


def check_jobs(jobs: Sequence[Job]) -> None:
    """Refuse before the first run what would stop a suite in the middle.

    Raises:
        ConfigError: A method cannot be built for its task with its options, or a task of the
            user's fails on its first batch.
    """
    wanted = dict.fromkeys(
        (job.task, job.data, job.method, options)
        for job in dict.fromkeys(replace(job, seed=0) for job in jobs)
        for options in (Sweep(job).first_options if job.sweep and job.options else [job.options])
    )
    for task, data, axis in dict.fromkeys((job.task, job.data, job.budget.axis) for job in jobs):
        check_axis(tasks.find(task, data), axis)
    for task, data, method, options in wanted:
        check_method(tasks.find(task, data), method, dict(options))
    seeds = {(job.task, job.data): (*job.sweep, job.seed)[0] for job in jobs}
    for (task, data), seed in seeds.items():
        dry_run.try_task(tasks.find(task, data), seed)


def carry_out(
    progress: Progress,
    folder: Path | None = None,
    processes: int | None = None,
    ray: str | None = None,
) -> Iterator[tuple[Job, Record]]:
    """Run what is left and hand out records as they come; several processes take a core each.

    Ctrl-C lets runs save themselves into the folder, from where the next call resumes.

    Args:
        progress: What is left.
        folder: Where interrupted runs are saved.
        processes: Runs at a time: one if left out, or as many as Ray has processors.
        ray: The address of a cluster that runs them, or `local`.
    """
    if ray is not None:
        yield from share_on_ray(progress, ray, folder, processes)
        return
    progress.processes = processes or 1
    if progress.processes > 1:
        yield from _share_out(progress, folder, progress.processes)
        return
    while (job := progress.next_job(set())) is not None:
        record = job.run(folder)
        progress.add(record)
        yield job, record


def _share_out(
    progress: Progress, folder: Path | None, processes: int
) -> Iterator[tuple[Job, Record]]:
    others, context = set(active_children()), get_context("spawn")
    stopping = context.Event()
    done: SimpleQueue[Future[Record] | None] = SimpleQueue()
    running: dict[Future[Record], Job] = {}
    with ProcessPoolExecutor(processes, context, _start_worker, (stopping,)) as pool:
        try:
            while True:
                with _interrupts_noted(lambda: done.put(None)):
                    while len(running) < processes:
                        job = progress.next_job({other.key for other in running.values()})
                        if job is None:
                            break
                        with _interrupts_blocked():
                            future = pool.submit(_run, job, folder)
                        running[future] = job
                        future.add_done_callback(done.put)
                    finished = done.get() if running else None
                    record = None if finished is None else finished.result()
                if finished is not None and record is not None:
                    job = running.pop(finished)
                    progress.add(record)
                    yield job, record
                elif not running:
                    return
        finally:
            stopping.set()
            _interrupt(set(active_children()) - others)
            pool.shutdown(wait=True, cancel_futures=True)


def _interrupt(workers: Iterable[BaseProcess]) -> None:
    for worker in workers:
        with suppress(ProcessLookupError):  # it has ended meanwhile; the others have not
            if worker.pid is not None:
                os.kill(worker.pid, signal.SIGINT)


@contextmanager
def _interrupts_noted(wake: Callable[[], None]) -> Iterator[None]:
    """Ctrl-C and `kill` do not cut what is done in here, but call `wake`, and count at its end.

    The pool and its futures hold locks while they note a job. An exception from a signal's handler
    in the middle of that would leave one locked: the pool's own thread would wait for it for ever,
    and we for that thread.
    """
    heard: list[int] = []
    noting = True
    kept = {number: signal.getsignal(number) for number in INTERRUPTS}
    ours = {n: handler for n, handler in kept.items() if callable(handler)} if _is_main() else {}

    def hear(number: int, frame: FrameType | None) -> None:
        if noting:
            heard.append(number)
            wake()
        else:  # while handlers are put back, which another signal may cut short
            ours[signal.Signals(number)](number, frame)

    for number in ours:
        signal.signal(number, hear)
    try:
        yield
    finally:
        noting = False
        for number, handler in ours.items():
            signal.signal(number, handler)
        for first in heard[:1]:
            signal.raise_signal(first)


@contextmanager
def _interrupts_blocked() -> Iterator[None]:
    """A worker that is started in here inherits it: it hears Ctrl-C and `kill` when it asks to.

    One that dies while it starts would make the pool end the others in the middle of saving.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, INTERRUPTS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


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
    for number in INTERRUPTS:
        signal.signal(number, signal.SIG_IGN)  # what has come so far; the event says it, too
    signal.pthread_sigmask(signal.SIG_UNBLOCK, INTERRUPTS)
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
