"""What a target is: a kind of input, samples of it by the real code, and what reads it."""

import shutil
from pathlib import Path
from random import Random
from typing import NamedTuple

from hypothesis.strategies import SearchStrategy


class Case(NamedTuple):
    """An input.

    Attributes:
        content: Of the file, or the arguments with a zero byte after each.
        exact: The file was damaged: it is refused, or read as before.
    """

    content: bytes
    exact: bool = False


class Target:
    """One kind of input. The current folder is the target's own, and nothing else is written."""

    name = ""
    share = 1.0  # of the inputs
    seconds = 60.0  # for one input: far more than it takes, however busy the machine is
    memory = 1 << 30  # bytes beyond what the process has before the first input
    strategy: SearchStrategy[bytes] | None = None  # of inputs made from nothing, by hypothesis

    def prepare(self) -> None:
        """Write valid samples and what they need; called once."""

    def open(self) -> None:
        """Read them, and compute what undamaged ones give; called in every process."""

    def vary(self, rng: Random) -> Case:
        """A sample with changes."""
        raise NotImplementedError

    def read(self, case: Case) -> str:
        """Let the program read an input; `ACCEPTED` or `REFUSED`.

        Raises:
            Fault: The answer is wrong.
            BaseException: The program fails, which is a fault as well.
        """
        raise NotImplementedError


def remove(path: Path) -> None:
    """A file, or a folder with all that is in it."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
