"""The picture of `hardstep compare`: where it goes, and what it may replace."""

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import count
from pathlib import Path

from hardstep._files import check_writable
from hardstep.bench.records import Record
from hardstep.cli.outputs import check_picture, picture_file
from hardstep.tasks import Task
from hardstep.tasks.files import run_name


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
        origin = f"{self.command}{part}"
        if self.asked is not None:
            path = picture_file(self.asked)
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
