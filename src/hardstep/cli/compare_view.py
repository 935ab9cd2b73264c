"""What `hardstep compare` shows while it runs, and the picture that it leaves."""

import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from importlib.util import find_spec
from itertools import count
from pathlib import Path

from rich.console import Console
from rich.text import Text

from hardstep._durations import format_duration
from hardstep._files import check_writable
from hardstep._text import printable
from hardstep.bench.records import Record
from hardstep.bench.report import write_table
from hardstep.bench.runs import Job
from hardstep.bench.summary import summarize
from hardstep.cli.files import check_picture, with_ending
from hardstep.cli.output import print
from hardstep.optim import StepReport
from hardstep.tasks import Task
from hardstep.tasks.files import run_name
from hardstep.training import Callback, Run
from hardstep.training.callbacks import SECONDS_BETWEEN_LINES


class LiveTable(Callback):
    """A line that moves with every step and, below it, the methods so far.

    The line comes first, so that it is there on a terminal too low for the table. Watching a run
    only notes a number: what is shown is made when the screen is renewed. Where there is no
    terminal the line alone is printed, now and then.
    """

    def __init__(self, total: int, console: Console | None = None) -> None:
        self.total, self.console = total, console or Console(stderr=True)
        self._began = time.monotonic()
        self._found: list[Record] = []
        self._table = ""
        self._job: Job | None = None
        self._spent = ""
        self._part = 0.0  # of the run of the moment
        self._next = self._began + SECONDS_BETWEEN_LINES

    def begin(self, job: Job) -> None:
        """The run that comes next; its budget is measured before its first step."""
        self._job, self._spent, self._part = job, "preparing", 0.0

    def add(self, record: Record) -> None:
        """A run is over."""
        self._found.append(record)
        self._part = 0.0
        (table,) = summarize(self._found, record["method"]).tables
        self._table = write_table(table)

    def on_step(self, run: Run, report: StepReport) -> None:
        """How much of its budget the run has spent."""
        assert self._job is not None
        budget = self._job.budget
        spent = {
            "steps": run.step,
            "evals": run.optimizer.evaluations,
            "time": round(run.seconds, 1),
            "interactions": run.interactions,
        }[budget.axis]
        self._part = min(1.0, spent / budget.amount)
        self._spent = f"{spent:,} of {budget}"
        if not self.console.is_terminal and time.monotonic() >= self._next:
            self.console.print(self.progress, highlight=False, soft_wrap=True)
            self._next = time.monotonic() + SECONDS_BETWEEN_LINES

    @property
    def progress(self) -> str:
        """Runs, the time left, and the run of the moment."""
        elapsed, share = time.monotonic() - self._began, len(self._found) + self._part
        clock = str(timedelta(seconds=int(elapsed)))
        if share:
            clock = f"{format_duration(elapsed * max(0.0, self.total / share - 1))} left"
        done = f"{len(self._found)} of {self.total} runs, {clock}"
        if self._job is None:
            return done
        return f"{done}; {self._job.method}, seed {self._job.seed}: {self._spent}"

    def __rich__(self) -> Text:
        line = self.progress
        if len(line) > self.console.width:
            line = line.rpartition(" ")[0]  # without the unit, which the table's heading names
        return Text(printable(f"{line}\n{self._table}"), no_wrap=True, overflow="ellipsis")


@dataclass(frozen=True)
class Curves:
    """Drawn where asked, else in runs/, beside what `train` writes there.

    In runs/ a picture replaces only one that the same command has drawn of as many runs: where
    another file has the name it takes the next number, as runs of `train` do.
    """

    task: Task
    match: str
    command: str
    asked: Path | None = None

    def check(self) -> None:
        """Look at the place before the first run; without matplotlib a usual one is not needed.

        Raises:
            DataError: It cannot be written, or does not end as a picture does.
        """
        if self.asked is not None:
            check_picture(self.asked, "--picture")
        elif find_spec("matplotlib") is not None:
            check_writable(next(self._usual()), "--picture, or draw none with --no-picture")

    def draw(self, found: Sequence[Record], total: int) -> None:
        """Draw the runs there are, and say where, or what is missing for it."""
        try:
            from hardstep.bench.pictures import draw_curves, origin_of
        except ImportError:
            missing = "no picture: matplotlib is missing, pip install 'hardstep[plot]'"
            print(missing, file=sys.stderr)
            return
        part = f"  # {len(found)} of {total} runs" if len(found) < total else ""
        origin = printable(f"{self.command}{part}")  # a picture holds no halves of characters
        if self.asked is not None:
            path = with_ending(self.asked)
        else:
            free = (p for p in self._usual() if not p.exists() or origin_of(p) == origin)
            path = next(free)
        path.parent.mkdir(parents=True, exist_ok=True)
        draw_curves(path, self.task.title, found, origin)
        print(f"curves on three axes: {path}", file=sys.stderr)

    def _usual(self) -> Iterator[Path]:
        stem = f"compare-{run_name(self.task)}-{self.match}"
        yield Path("runs") / f"{stem}.png"
        yield from (Path("runs") / f"{stem}-{number}.png" for number in count(2))
