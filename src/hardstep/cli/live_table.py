"""What `hardstep compare` shows while it runs: how far it is, and the table so far."""

import time
from datetime import timedelta

from rich.text import Text

from hardstep.bench.records import Record
from hardstep.bench.report import write_table
from hardstep.bench.runs import Job
from hardstep.bench.summary import summarize
from hardstep.optim import StepReport
from hardstep.training import Callback, Run


class LiveTable(Callback):
    """A line that moves with every step and, below it, the methods so far.

    The line comes first, so that it is there on a terminal too low for the table. Watching a run
    only notes a number: what is shown is made when the screen is renewed.
    """

    def __init__(self, total: int) -> None:
        self.total = total
        self._began = time.monotonic()
        self._found: list[Record] = []
        self._table = ""
        self._job: Job | None = None
        self._spent = ""

    def begin(self, job: Job) -> None:
        """The run that comes next; its budget is measured before its first step."""
        self._job, self._spent = job, "preparing"

    def add(self, record: Record) -> None:
        """A run is over."""
        self._found.append(record)
        (table,) = summarize(self._found, record["method"]).tables
        self._table = write_table(table)

    def on_step(self, run: Run, report: StepReport) -> None:
        """How much of its budget the run has spent."""
        assert self._job is not None
        budget = self._job.budget
        spent = {
            "steps": f"{run.step:,}",
            "evals": f"{run.optimizer.evaluations:,}",
            "time": f"{run.seconds:.1f}",
        }
        self._spent = f"{spent[budget.axis]} of {budget}"

    @property
    def progress(self) -> str:
        """Runs, the time since the first began, and the run of the moment."""
        clock = timedelta(seconds=int(time.monotonic() - self._began))
        done = f"{len(self._found)} of {self.total} runs, {clock}"
        if self._job is None:
            return done
        return f"{done}; {self._job.method}, seed {self._job.seed}: {self._spent}"

    def __rich__(self) -> Text:
        return Text(f"{self.progress}\n{self._table}", no_wrap=True, overflow="ellipsis")
