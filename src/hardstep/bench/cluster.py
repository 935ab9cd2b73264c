"""Carrying out jobs on Ray: one run per processor of this machine or of a cluster.

A run is a task of Ray and returns its record, which the driver alone writes. A run that is lost
with its process or machine is handed out again. On this machine runs save themselves into the
driver's folder and continue from there; on a cluster, which may share no folder, they start again.
"""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from hardstep._files import describe_command
from hardstep._text import to_sentence
from hardstep.bench.progress import Progress
from hardstep.bench.records import Record
from hardstep.bench.runs import Job
from hardstep.distributed.messages import VERSION
from hardstep.distributed.ray import LOCAL, connect
from hardstep.errors import WorkerError

TRIES = 3  # of a run that is lost with its worker
LOOKS = 0.5  # seconds between looks at Ctrl-C
SAVED_WITHIN = 20.0  # seconds that interrupted runs have to save themselves


def share_on_ray(
    progress: Progress, address: str, folder: Path | None = None, processes: int | None = None
) -> Iterator[tuple[Job, Record]]:
    """Run what is left on a cluster, or on this machine, and hand out records as they come.

    Args:
        progress: What is left.
        address: Of the cluster; `local` starts Ray here.
        folder: Where runs save themselves, on this machine.
        processes: Runs at a time; as many as Ray has processors if left out.

    Raises:
        WorkerError: There is no such cluster, it has other versions, or a run was lost too often.
    """
    with connect(address, processes) as ray:
        progress.processes = processes or int(ray.cluster_resources().get("CPU", 1)) or 1
        place = folder.absolute() if folder is not None and address == LOCAL else None
        yield from _share_out(ray, progress, place)


def _share_out(ray: Any, progress: Progress, folder: Path | None) -> Iterator[tuple[Job, Record]]:
    start = ray.remote(_run).options(num_cpus=1, max_retries=0)
    lost: Counter[str] = Counter()
    with _cancelled_at_end(ray) as running:
        while True:
            while len(running) < progress.processes:
                job = progress.next_job({other.key for other in running.values()})
                if job is None:
                    break
                running[start.remote(VERSION, job, folder)] = job
            if not running:
                return
            ready, _ = ray.wait(list(running), num_returns=1, timeout=LOOKS)
            for ref in ready:
                job = running.pop(ref)
                record = _collect(ray, ref, job, lost)
                if record is not None:
                    record["command"] = describe_command()
                    progress.add(record)
                    yield job, record


def _collect(ray: Any, ref: Any, job: Job, lost: Counter[str]) -> Record | None:
    """The record of a run, or nothing if it has to be run again."""
    try:
        record: Record = ray.get(ref)
    except ray.exceptions.RayTaskError as error:
        raise error.cause from None  # the run's own, without Ray's page around it
    except ray.exceptions.RayError as error:
        lost[job.key] += 1
        if lost[job.key] < TRIES:
            return None
        said = str(error).strip().splitlines() or [""]
        raise WorkerError(
            f"the run of {job.method} on {job.task} with seed {job.seed} was lost with its worker "
            f"{TRIES} times, the last time with "
            f"{to_sentence(f'{type(error).__name__}: {said[0]}')[:200]}; look for what ends "
            "workers, such as memory"
        ) from None
    return record


@contextmanager
def _cancelled_at_end(ray: Any) -> Iterator[dict[Any, Job]]:
    """Runs, by Ray's names; those left at the end are interrupted and may save themselves."""
    running: dict[Any, Job] = {}
    try:
        yield running
    finally:
        left = list(running)
        for ref in left:
            ray.cancel(ref)
        if left:
            _, left = ray.wait(left, num_returns=len(left), timeout=SAVED_WITHIN)
        for ref in left:
            with suppress(ray.exceptions.RayError):
                ray.cancel(ref, force=True)


def _run(version: str, job: Job, folder: Path | None) -> Record:
    """A run in a worker."""
    import torch

    if version != VERSION:
        raise WorkerError(
            f"the driver runs hardstep {version} and a worker of Ray has {VERSION}; install the "
            "same versions on both"
        )
    torch.set_num_threads(1)
    return job.run(folder)
