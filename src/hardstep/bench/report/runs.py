"""Records sorted by what they are for: comparisons, ablations, tuning.

A record with a stage is of a sweep, and so is one without a test score; one that names a study
belongs to an ablation; the rest compares methods. What cannot be placed is named and skipped, as
in `load`.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from hardstep.bench.faults import SCHEMA, fault, number
from hardstep.bench.protocol import Budget
from hardstep.bench.records import Record
from hardstep.bench.summary import name_of
from hardstep.errors import DataError

CURVE_AXIS = {"steps": "steps", "evals": "evaluations", "time": "seconds"}  # of a budget's axis


@dataclass(frozen=True, slots=True)
class Measure:
    """What a score is; a percent score is recorded as a share."""

    name: str = "accuracy"
    higher_is_better: bool = True
    percent: bool = True

    @property
    def factor(self) -> float:
        """From what is recorded to what is shown."""
        return 100.0 if self.percent else 1.0

    @property
    def sign(self) -> float:
        """Times this, more is better."""
        return 1.0 if self.higher_is_better else -1.0

    @property
    def title(self) -> str:
        """Its name and unit."""
        return f"{self.name}, %" if self.percent else self.name


@dataclass(frozen=True)
class Run:
    """The parts of a record that every page needs, checked."""

    record: Record
    task: str
    data: str
    method: str
    seed: int
    budget: Budget
    measure: Measure
    test: float | None
    valid: float | None

    @property
    def options(self) -> str:
        """As text: runs of one name that agree on them are replicas."""
        return json.dumps(self.record.get("options") or {}, sort_keys=True)

    @property
    def study(self) -> str:
        """The ablation it belongs to, if any."""
        return str(self.record.get("study") or "")

    @property
    def name(self) -> str:
        """What it is called in tables: its variant in a study, else its method."""
        return name_of(self.record) or self.method

    @property
    def diverged(self) -> bool:
        """Whether it was scored and the score was not a number."""
        return self.test is None and "test" in self.record

    def cost(self, name: str) -> float | None:
        """A number of the record that not every version wrote."""
        return number(self.record.get(name))


@dataclass
class Sorted:
    """Runs by purpose, and what was left out."""

    comparisons: list[Run] = field(default_factory=list)
    ablations: list[Run] = field(default_factory=list)
    tuning: list[Run] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)
    repeated: int = 0


def sort_out(records: Iterable[Record]) -> Sorted:
    """Place every record; of runs that repeat each other the last one counts."""
    found, latest = Sorted(), {}
    for record in records:
        try:
            run = parse(record)
        except DataError as error:
            found.skipped.append(str(error))
            continue
        place = (run.task, run.data, run.budget, run.measure, run.study, run.name)
        key = (place, run.method, run.options, run.seed, str(record.get("stage")))
        found.repeated += key in latest
        latest[key] = run
    for run in latest.values():
        if run.record.get("stage") or not (run.study or run.diverged or run.test is not None):
            found.tuning.append(run)
        elif run.study:
            found.ablations.append(run)
        else:
            found.comparisons.append(run)
    return found


def parse(record: Record) -> Run:
    """Check what a page relies on.

    Raises:
        DataError: A field is missing or of the wrong kind; the sentence names the run.
    """
    reason = fault({"schema": SCHEMA, **record})
    if reason:
        run = ", ".join(f"{name} {record.get(name)}" for name in ("method", "task", "seed"))
        raise DataError(f"run of {run}: {reason}")
    budget, metric = record["budget"], record.get("metric")
    return Run(
        record,
        record["task"],
        record["data"],
        record["method"],
        record["seed"],
        Budget(budget["axis"], float(budget["amount"])),
        Measure() if metric is None else _measure(metric),
        test=number(record.get("test")),
        valid=number(record.get("valid")),
    )


def _measure(given: Mapping[str, Any]) -> Measure:
    better, percent = given.get("higher_is_better", True), given.get("percent", False)
    return Measure(given["name"], bool(better), bool(percent))
