"""Things that watch a run: a progress bar, a log, TensorBoard, early stopping."""

import json
import math
import time
from collections import deque
from dataclasses import asdict, dataclass
from io import RawIOBase
from pathlib import Path
from typing import Any, TextIO

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn
from rich.table import Column

from hardstep._checks import check_count
from hardstep._durations import format_count, format_duration
from hardstep._files import explain_failed_write, free_beside, write_text
from hardstep._seals import seal_json
from hardstep._text import printable
from hardstep.optim import StepReport
from hardstep.training.logs import read_log
from hardstep.training.run import Run, Score

SECONDS_BETWEEN_LINES = 10.0
RECENT = 20  # steps by which the time left is told; the first of a run compiles


class Callback:
    """Does nothing; override what is needed. `run` may be read, and told to stop.

    Attributes:
        decides: Whether it may tell a run to stop. Where several ranks train together, each has to
            decide alike; what only watches is left to the first of them.
    """

    decides = False

    def on_start(self, run: Run) -> None:
        """Before the first step of this session."""

    def on_step(self, run: Run, report: StepReport) -> None:
        """After every step."""

    def on_validation(self, run: Run, score: Score) -> None:
        """After every validation."""

    def on_message(self, text: str) -> None:
        """When the run has something to tell the user."""

    def on_end(self, run: Run) -> None:
        """After the last step of this session, also when it was interrupted."""


@dataclass
class EarlyStopping(Callback):
    """Stop when `patience` validations in a row have not improved on the best."""

    patience: int
    decides = True

    def __post_init__(self) -> None:
        check_count("EarlyStopping: patience", self.patience)

    def on_validation(self, run: Run, score: Score) -> None:
        """Count validations since the best one."""
        assert run.best is not None
        since = sum(past.step > run.best.step for past in run.history)
        if since >= self.patience:
            run.stop(f"no improvement in {since} validations")


@dataclass
class Goal(Callback):
    """Stop when the losses of `steps` steps in a row were at most `loss`: nothing is left to learn.

    A step's loss is an average over its probes, so the weights between them are good as well.
    """

    loss: float
    steps: int = 3
    decides = True

    def __post_init__(self) -> None:
        check_count("Goal: steps", self.steps)

    def on_step(self, run: Run, report: StepReport) -> None:
        """Count steps at the goal."""
        margin = 1e-9 * abs(self.loss)  # equal losses weighted by a plan, up to rounding
        run.steps_at_goal = run.steps_at_goal + 1 if report.loss <= self.loss + margin else 0
        if run.steps_at_goal >= self.steps:
            run.stop("goal reached")


class JsonlLog(Callback):
    """One JSON object per step and per validation, a line each.

    A resumed run continues its file, less the lines past the point it resumes from, so that
    steps appear once. A new run begins a new file; one that is there already is kept beside it,
    as log.1.jsonl for log.jsonl. Lines that a full disk does not take are written when there is
    room again.
    """

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        self._file: RawIOBase | None = None
        self._pending = b""  # not written yet
        self._has_failed = False

    def on_start(self, run: Run) -> None:
        """Open the file: this run's, cut to the steps it has really taken, or a new one."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        if run.step:
            self._cut(run)
        elif self.path.exists() and self.path.stat().st_size:
            aside = free_beside(self.path)
            self.path.rename(aside)
            run.say(f"{self.path} is the log of an earlier run, now kept as {aside}")
        # Without a buffer it is known what was written when the disk is full.
        self._file, self._pending = self.path.open("ab", buffering=0), b""

    def _cut(self, run: Run) -> None:
        """Drop what a session wrote after its last checkpoint.

        Raises:
            DataError: The log is damaged, or cannot be written.
        """
        if not self.path.exists():
            return
        kept = [line for line in read_log(self.path) if line.row["step"] <= run.step]
        lost = run.step - len({line.row["step"] for line in kept if line.row["event"] == "step"})
        if lost > 0:
            run.warn(f"{self.path} lacks {lost} of the {run.step} steps this run has taken")
        write_text(self.path, "".join(f"{line.text}\n" for line in kept))

    def _write(self, run: Run, row: dict[str, Any]) -> None:
        clean = {k: None if isinstance(v, float) and math.isnan(v) else v for k, v in row.items()}
        self._pending += seal_json(json.dumps(clean)).encode() + b"\n"
        try:
            self._flush()
        except OSError as error:
            if not self._has_failed:
                run.warn(f"{self.path} cannot be written, and waits for room: {error.strerror}")
            self._has_failed = True

    def _flush(self) -> None:
        assert self._file is not None
        while self._pending:
            self._pending = self._pending[self._file.write(self._pending) or 0 :]
        self._has_failed = False

    def on_step(self, run: Run, report: StepReport) -> None:
        """The step's report; `step` counts steps taken."""
        row = asdict(report) | {"step": run.step, "total_evaluations": run.optimizer.evaluations}
        if run.interactions:
            row["interactions"] = run.interactions
        self._write(run, {"event": "step", "elapsed": run.seconds, **row})

    def on_validation(self, run: Run, score: Score) -> None:
        """The validation's value."""
        name = run.metric.name if run.metric else "loss"
        self._write(run, {"event": "validation", "metric": name, **asdict(score)})

    def on_end(self, run: Run) -> None:
        """Close the file."""
        if self._file is None:
            return
        try:
            self._flush()
        except OSError as error:
            lost = self._pending.count(b"\n")
            run.warn(f"{self.path} lacks its last {lost} lines: {error.strerror}")
        self._file.close()
        self._file = None


class CoverageLog(Callback):
    """What the run has shown of the convergence theorem's hypotheses, every so many steps.

    One JSON object per line: the measured quantities, and how each condition stands.
    """

    def __init__(self, path: Path | str, every: int = 10) -> None:
        check_count("CoverageLog: every", every)
        self.path, self.every = Path(path), every

    def on_step(self, run: Run, report: StepReport) -> None:
        """Append a line, if it is time."""
        if run.step % self.every == 0:
            self._write(run)

    def on_end(self, run: Run) -> None:
        """The last step, too."""
        if run.step % self.every:
            self._write(run)

    def _write(self, run: Run) -> None:
        found = run.optimizer.coverage()
        seen = found.statistics
        row = {
            "step": run.step,
            "conditions": {c.number: c.status for c in found.conditions},
            "saturation": seen.saturation,
            "spread": seen.spread,
            "square": seen.square,
            "dead_share": seen.dead_share,
        }
        with explain_failed_write(self.path):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.open("a") as stream:
                stream.write(json.dumps(row) + "\n")


class TensorBoard(Callback):
    """Scalars for TensorBoard (install `hardstep[tensorboard]`)."""

    def __init__(self, folder: Path | str) -> None:
        self.folder = str(folder)
        self._writer: Any = None

    def on_start(self, run: Run) -> None:
        """Open the writer; what a crashed session wrote past this step is hidden."""
        from torch.utils.tensorboard import SummaryWriter

        self._writer = SummaryWriter(self.folder, purge_step=run.step + 1)

    def on_step(self, run: Run, report: StepReport) -> None:
        """Loss and diagnostics."""
        for name in ("loss", "temperature", "displacement", "spread_max", "dead_share"):
            self._writer.add_scalar(f"step/{name}", getattr(report, name), run.step)

    def on_validation(self, run: Run, score: Score) -> None:
        """The metric."""
        name = run.metric.name if run.metric else "loss"
        self._writer.add_scalar(f"validation/{name}", score.value, run.step)

    def on_end(self, run: Run) -> None:
        """Flush and close."""
        self._writer.close()


class Pace:
    """How long the rest takes, by the last steps.

    Rich's own column forgets steps that take more than half a minute.
    """

    def __init__(self, done: int = 0) -> None:
        self._seen = deque([(time.monotonic(), done)], maxlen=RECENT + 1)

    def seconds_left(self, step: int, steps: int | None) -> float | None:
        """From here to the last step; none as long as nothing is known."""
        now = time.monotonic()
        self._seen.append((now, step))
        then, before = self._seen[0]
        if not steps or step <= before:
            return None
        return max(0, steps - step) * (now - then) / (step - before)


class LiveLine:
    """A live bar with numbers on a terminal, elsewhere a plain line now and then.

    On stderr, unless a stream is given.
    """

    def __init__(self, stream: TextIO | None = None) -> None:
        self.console = Console(file=stream, stderr=stream is None)
        self._bar: Progress | None = None
        self._next = 0.0
        self._pace = Pace()

    def start(self, steps: int | None, done: int = 0) -> None:
        """Show the bar, if there is a terminal to show it on; some steps may have been done."""
        self._pace = Pace(done)
        if self.console.is_terminal:
            self._bar = Progress(
                TextColumn(
                    "step {task.completed}/{task.total}",
                    table_column=Column(no_wrap=True, min_width=len(f"step {steps}/{steps}")),
                ),
                BarColumn(bar_width=24),
                TextColumn("{task.fields[numbers]}", markup=False),
                console=self.console,
                transient=True,
            )
            self._bar.add_task("steps", total=steps, completed=done, numbers="")
            self._bar.start()

    def show(
        self, step: int, steps: int | None, numbers: str, seconds_left: float | None = None
    ) -> None:
        """Renew the line; the time left is estimated unless it is given."""
        estimate = self._pace.seconds_left(step, steps)
        left = estimate if seconds_left is None else seconds_left
        if left is not None:
            numbers = f"{format_duration(left)} left  {numbers}"
        if self._bar is not None:
            self._bar.update(self._bar.task_ids[0], completed=step, numbers=printable(numbers))
        elif time.monotonic() >= self._next:
            of = f"/{steps}" if steps else ""
            self.say(f"step {step}{of}  {numbers}")
            self._next = time.monotonic() + SECONDS_BETWEEN_LINES

    def say(self, text: str) -> None:
        """Print above the bar."""
        self.console.print(printable(text), markup=False, highlight=False, soft_wrap=True)

    def close(self) -> None:
        """Take the bar away."""
        if self._bar is not None:
            self._bar.stop()
            self._bar = None


class ProgressBar(Callback):
    """Loss, validation and speed in a `LiveLine`."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self.line = LiveLine(stream)
        self._validation = "–"
        self._evaluations = 0
        self._interactions = 0
        self._seconds = 0.0

    def on_start(self, run: Run) -> None:
        """Show the bar."""
        self._evaluations, self._seconds = run.optimizer.evaluations, run.seconds
        self._interactions = run.interactions
        if run.history:
            self._validation = self._format(run, run.history[-1])
        self.line.start(run.total_steps or None, run.step)

    def on_step(self, run: Run, report: StepReport) -> None:
        """Update the numbers."""
        spent = max(run.seconds - self._seconds, 1e-9)
        rate = (run.optimizer.evaluations - self._evaluations) / spent
        path = getattr(run.optimizer.evaluator, "path", "")
        numbers = f"loss {report.loss:.3f}  valid {self._validation}  {rate:,.0f} evals/s  {path}"
        if run.interactions:  # what a simulator's steps cost is what counts there
            per_second = (run.interactions - self._interactions) / spent
            numbers = (
                f"return {-report.loss:.4g}  valid {self._validation}  "
                f"{format_count(run.interactions)} interactions  {format_count(per_second)}/s"
            )
        self.line.show(run.step, run.total_steps, numbers)

    def on_validation(self, run: Run, score: Score) -> None:
        """Remember what to show."""
        self._validation = self._format(run, score)

    def on_message(self, text: str) -> None:
        """Print above the bar."""
        self.line.say(text)

    def on_end(self, run: Run) -> None:
        """Take the bar away."""
        self.line.close()

    @staticmethod
    def _format(run: Run, score: Score) -> str:
        return f"{score.value:.4g}" if run.metric is None else run.metric.format(score.value)
