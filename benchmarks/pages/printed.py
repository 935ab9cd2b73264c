"""What the paper prints, from printed.toml."""

import tomllib
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

SOURCE = Path(__file__).with_suffix(".toml")
Table = Mapping[str, Any]


class Figure(NamedTuple):
    """A mean over seeds, with its spread if there are several."""

    mean: float
    spread: float | None
    seeds: int

    @property
    def variance(self) -> float | None:
        """Of the mean; none if the spread is not known."""
        return None if self.spread is None else self.spread**2 / self.seeds


@cache
def read() -> Table:
    """Tables and claims."""
    return tomllib.loads(SOURCE.read_text())


def find_table(label: str) -> Table:
    """The table of that label in the paper."""
    (table,) = (table for table in read()["table"] if table["label"] == label)
    return table


def parse(text: str, seeds: int) -> Figure:
    """A figure as it is printed, such as 93.0 ± 0.2, 97.4 or ~12."""
    mean, _, spread = text.removeprefix("~").partition(" ± ")
    return Figure(float(mean), float(spread) if spread else None, seeds)


def digits_of(text: str) -> int:
    """How many are printed after the point."""
    return len(text.partition(" ")[0].partition(".")[2])
