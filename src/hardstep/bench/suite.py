"""Suites: a TOML file that says which runs there should be.

data = "digits"

[[run]]
tasks = ["snn", "int8"]
methods = ["polystep", "openai-es"]
seeds = [0, 1, 2]
match = "evals"          # or steps, time
budget = 50_000          # evaluations, steps or seconds

[options.snn.openai-es]  # what tuning found, if anything
sigma = 0.1
"""

import itertools
import json
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from hardstep import tasks
from hardstep.bench.methods import KNOWN_OPTIONS, METHODS, check
from hardstep.bench.protocol import Axis, Budget, run_method
from hardstep.bench.records import Record
from hardstep.errors import ConfigError, DataError

KEYS = ("data", "run", "options")
RUN_KEYS = ("tasks", "methods", "seeds", "match", "budget")


@dataclass(frozen=True)
class Job:
    """One run that a suite asks for."""

    task: str
    data: str
    method: str
    seed: int
    axis: Axis
    amount: float
    options: tuple[tuple[str, Any], ...]

    @property
    def key(self) -> str:
        """What makes a run the same run."""
        return json.dumps([self.task, self.data, self.method, self.seed, self.axis,
                           float(self.amount), sorted(self.options)])  # fmt: skip

    def run(self) -> Record:
        """Carry it out."""
        budget = Budget(self.axis, self.amount)
        task = tasks.find(self.task, self.data)
        return run_method(task, self.data, self.method, self.seed, budget, dict(self.options))


def key_of(record: Record) -> str:
    """The key of the job a record came from; empty if it came from none."""
    if "budget" not in record or "test" not in record:
        return ""
    budget = record["budget"]
    options = tuple(record["options"].items())
    return Job(record["task"], record["data"], record["method"], record["seed"], budget["axis"],
               budget["amount"], options).key  # fmt: skip


def read(path: Path | str) -> list[Job]:
    """The jobs of a suite, in the order of the file.

    Raises:
        DataError: The file is missing or not TOML.
        ConfigError: A key, task, method or option does not exist; the nearest is suggested.
    """
    try:
        config = tomllib.loads(Path(path).read_text())
    except OSError as error:
        raise DataError(f"suite {path} cannot be read: {error.strerror}") from error
    except tomllib.TOMLDecodeError as error:
        raise DataError(f"suite {path} is not TOML: {error}") from error
    for key in config:
        check(key, KEYS, f"key of {path}")
    data = config.get("data", "digits")
    options = config.get("options", {})
    _check_options(options, data)
    jobs = [job for table in config.get("run", []) for job in _expanded(table, data, options, path)]
    if not jobs:
        raise ConfigError(f"suite {path} has no [[run]], so there is nothing to do")
    return jobs


def _expanded(
    table: Mapping[str, Any], data: str, options: Mapping[str, Any], path: Path | str
) -> Iterator[Job]:
    for key in table:
        check(key, RUN_KEYS, f"key of a [[run]] in {path}")
    missing = [key for key in RUN_KEYS if key not in table]
    if missing:
        raise ConfigError(f"a [[run]] of {path} lacks {missing[0]}")
    Budget(table["match"], table["budget"])
    for task, method, seed in itertools.product(table["tasks"], table["methods"], table["seeds"]):
        tasks.find(task, data)
        check(method, METHODS, "method")
        chosen = tuple(options.get(task, {}).get(method, {}).items())
        yield Job(task, data, method, seed, table["match"], float(table["budget"]), chosen)


def _check_options(options: Mapping[str, Any], data: str) -> None:
    for task, methods in options.items():
        tasks.find(task, data)
        for method, chosen in methods.items():
            check(method, METHODS, "method")
            for name in chosen:
                check(name, KNOWN_OPTIONS[method], f"option of {method}")


def remaining(jobs: Sequence[Job], records: Sequence[Record]) -> list[Job]:
    """Jobs that no record answers yet."""
    done = {key_of(record) for record in records}
    return [job for job in jobs if job.key not in done]


def carry_out(jobs: Sequence[Job], processes: int = 1) -> Iterator[tuple[Job, Record]]:
    """Run jobs and hand out records as they come; several processes take one core each."""
    if processes == 1:
        for job in jobs:
            yield job, job.run()
        return
    with ProcessPoolExecutor(processes, get_context("spawn"), _one_thread) as pool:
        futures: dict[Future[Record], Job] = {pool.submit(job.run): job for job in jobs}
        try:
            for future in as_completed(futures):
                yield futures[future], future.result()
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


def _one_thread() -> None:
    import torch

    torch.set_num_threads(1)
