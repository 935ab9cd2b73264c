"""One line of progress: a live bar on a terminal, elsewhere a plain line now and then."""

import time
from typing import TextIO

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

SECONDS_BETWEEN_LINES = 10.0


class LiveLine:
    """A bar with numbers, on stderr unless a stream is given."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self.console = Console(file=stream, stderr=stream is None)
        self._bar: Progress | None = None
        self._next = 0.0

    def start(self, steps: int | None) -> None:
        """Show the bar, if there is a terminal to show it on."""
        if self.console.is_terminal:
            self._bar = Progress(
                TextColumn("step {task.completed}/{task.total}"),
                BarColumn(bar_width=24),
                TextColumn("{task.fields[numbers]}"),
                TimeRemainingColumn(compact=True),
                console=self.console,
                transient=True,
            )
            self._bar.add_task("steps", total=steps, numbers="")
            self._bar.start()

    def show(self, step: int, steps: int | None, numbers: str) -> None:
        """Renew the line."""
        if self._bar is not None:
            self._bar.update(self._bar.task_ids[0], completed=step, numbers=numbers)
        elif time.monotonic() >= self._next:
            of = f"/{steps}" if steps else ""
            self.say(f"step {step}{of}  {numbers}")
            self._next = time.monotonic() + SECONDS_BETWEEN_LINES

    def say(self, text: str) -> None:
        """Print above the bar."""
        self.console.print(text, highlight=False, soft_wrap=True)

    def close(self) -> None:
        """Take the bar away."""
        if self._bar is not None:
            self._bar.stop()
            self._bar = None
