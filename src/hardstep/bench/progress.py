"""What is left of a suite, in its order, and how long it may take."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from statistics import fmean

from hardstep.bench.records import Record
from hardstep.bench.runs import Job, key_of
from hardstep.bench.tuning import STAGES, Sweep


class Progress:
    """What is known of a suite: its records by key, what is left, and how long that may take.

    Args:
        jobs: Of the suite.
        records: Of earlier runs.
        sweeps: Of which the runs are wanted alone, without those of a job with what they find.
    """

    def __init__(
        self, jobs: Sequence[Job], records: Sequence[Record], sweeps: Sequence[Sweep] = ()
    ) -> None:
        self.known = {key: record for record in records if (key := key_of(record))}
        groups: dict[Job, list[Job]] = defaultdict(list)
        for job in jobs:
            groups[replace(job, seed=0)].append(job)
        self._groups = [(Sweep(job), same) for job, same in groups.items()]  # differ in the seed
        self._groups += [(sweep, []) for sweep in sweeps]
        self._todo = [self._next(*group) for group in self._groups]
        self.processes = 1  # runs at a time

    def _next(self, sweep: Sweep, jobs: Sequence[Job]) -> list[Job]:
        """What can be run now: a stage of the sweep, or the jobs with the options it found."""
        if missing := sweep.missing(self.known):
            return missing
        options = sweep.choose(self.known)
        chosen = [replace(job, options=options, sweep=()) for job in jobs]
        return [job for job in chosen if job.key not in self.known]

    @property
    def total(self) -> int:
        """Runs of the suite, sweeps included."""
        return sum(len(jobs) + sum(map(sweep.size, STAGES)) for sweep, jobs in self._groups)

    @property
    def left(self) -> int:
        """Runs not recorded yet."""
        return sum(num for _, parts in self._parts_left() for num, _ in parts)

    @property
    def unfinished(self) -> list[Job]:
        """Jobs with runs not recorded yet, all seeds of them."""
        pairs = zip(self._groups, self._todo, strict=True)
        return [job for (_, jobs), todo in pairs if todo for job in jobs]

    def limit(self, processes: int | None) -> int | None:
        """No more processes than runs are left: each takes its memory."""
        return processes and min(processes, max(1, self.left))

    def next_job(self, busy: set[str]) -> Job | None:
        """The first job in the order of the suite that can be run now and is not busy."""
        for jobs in self._todo:
            for job in jobs:
                if job.key not in busy:
                    return job
        return None

    def add(self, record: Record) -> None:
        """Take in a new record; only jobs that wait for it have something else to do now."""
        key = key_of(record)
        self.known[key] = record
        for index, todo in enumerate(self._todo):
            if any(job.key == key for job in todo):
                self._todo[index] = self._next(*self._groups[index])

    def _parts_left(self) -> Iterator[tuple[Job, list[tuple[int, float]]]]:
        """Of every sweep and its jobs: number and budget of the runs left, stage by stage."""
        for (sweep, jobs), todo in zip(self._groups, self._todo, strict=True):
            parts = [(len(todo), todo[0].budget.amount)] if todo else []
            stage = todo[0].stage if todo else 0
            if stage == 1:
                parts.append((sweep.size(2), sweep.job.sweep_amount))
            if stage:
                parts.append((len(jobs), sweep.job.budget.amount))
            yield sweep.job, parts

    def seconds_left(self) -> float:
        """Of wall-clock, from what a unit of budget took in the runs that are most alike."""
        rates: dict[tuple[str, ...], list[float]] = defaultdict(list)
        runs = [record for record in self.known.values() if "seconds" in record]
        for record in runs:
            axis, amount = record["budget"]["axis"], record["budget"]["amount"]
            for shared in _in_common(record["task"], record["method"], axis):
                rates[shared].append(record["seconds"] / amount)
        total = 0.0
        for job, parts in self._parts_left():
            alike = _in_common(job.task, job.method, job.budget.axis)
            known = next((rates[shared] for shared in alike if shared in rates), None)
            if known:
                total += fmean(known) * sum(num * amount for num, amount in parts)
            elif runs:  # of other budgets, so that a run is all there is to count by
                total += fmean(record["seconds"] for record in runs) * sum(n for n, _ in parts)
        return total / self.processes


def _in_common(task: str, method: str, axis: str) -> tuple[tuple[str, ...], ...]:
    """What runs may share, most first; without a common axis there is no rate."""
    return (axis, method, task), (axis, method), (axis,)
