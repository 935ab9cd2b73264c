"""Generations of points: which are open, and which of them a loss is told for.

A point is its own token. It is recognized by its coordinates, bit for bit, however it traveled, so
that a loss that comes late, twice or from elsewhere is never taken for another point's.
"""

from collections import Counter, deque
from collections.abc import Mapping
from functools import cached_property
from typing import Any, Literal, NamedTuple
from zlib import crc32

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from hardstep.errors import ObjectiveError
from hardstep.optim.variables import Vector

Numbers = NDArray[np.intp]
Late = Literal["raise", "ignore"]
REMEMBERED = 16  # complete generations that a message can still name


class Best(NamedTuple):
    """A point and its loss."""

    x: Vector
    loss: float


class Generation:
    """Points (N, dim) and the losses told so far."""

    def __init__(self, number: int, points: Vector) -> None:
        self.number = number
        self.points = points
        self.losses = np.full(len(points), np.nan)
        self.told = np.zeros(len(points), dtype=bool)

    def find_rows(self, points: Vector) -> Numbers:
        """The row of each point, −1 where there is none; equal rows are given out in turn."""
        found, used = [], Counter[bytes]()
        for point in points:
            key = _as_key(point)
            rows = sorted(self._rows.get(key, ()), key=self.told.__getitem__)  # open ones first
            found.append(rows[min(used[key], len(rows) - 1)] if rows else -1)
            used[key] += 1
        return np.array(found, dtype=np.intp)

    def find_open(self, rows: Numbers) -> NDArray[np.bool_]:
        """Which of these rows are there and wait for a loss; each counts once."""
        is_open = np.zeros(len(rows), dtype=bool)
        is_open[np.unique(rows, return_index=True)[1]] = True
        is_open &= (rows >= 0) & ~np.append(self.told, True)[rows]
        return is_open

    def find_best(self) -> Best | None:
        """The best point told so far, if any loss was finite."""
        known = np.flatnonzero(np.isfinite(self.losses))
        if not len(known):
            return None
        winner = known[np.argmin(self.losses[known])]
        return Best(self.points[winner].copy(), float(self.losses[winner]))

    @cached_property
    def _rows(self) -> dict[bytes, list[int]]:
        rows: dict[bytes, list[int]] = {}
        for number, point in enumerate(self.points):
            rows.setdefault(_as_key(point), []).append(number)
        return rows


def _as_key(point: Vector) -> bytes:
    return (point + 0.0).tobytes()  # zero has two signs and is one number


class Generations:
    """The present generation, what was asked of it, and a memory of those before.

    Losses without points are of the last `ask`. So they are late once its generation is complete.
    """

    def __init__(self) -> None:
        self.now = Generation(0, np.empty((0, 0)))
        self._asked = 0  # the number of the generation asked for last
        self._past: deque[tuple[int, frozenset[int]]] = deque(maxlen=REMEMBERED)

    def begin(self, points: Vector) -> None:
        """Go on to the next generation, of these points."""
        sums = frozenset(crc32(_as_key(point)) for point in self.now.points)
        self._past.append((self.now.number, sums))
        self.now = Generation(self.now.number + 1, points)

    def ask(self) -> Vector:
        """A copy of the points."""
        self._asked = self.now.number
        return self.now.points.copy()

    def tell(self, losses: Vector, points: ArrayLike | None, late: Late) -> int:
        """Take in losses of points, of rows by number, or of all rows; returns how many.

        Raises:
            ObjectiveError: They do not fit together; or some points are not open, unless late ones
                are ignored. Nothing has changed.
        """
        given = None if points is None else _as_numbers(points)
        if given is not None and losses.ndim == 0:
            losses, given = losses[None], given[None]
        if (given is None or given.ndim < 2) and self._asked != self.now.number:
            if late == "ignore" and self._asked:
                return 0
            raise ObjectiveError(self._explain_late(self._asked))
        rows = self._find_rows(given)
        if losses.shape != rows.shape:
            raise ObjectiveError(
                f"tell: expected {rows.shape} losses, one per point, got {losses.shape}"
            )
        is_open = self.now.find_open(rows)
        if late == "raise" and not is_open.all():
            raise ObjectiveError(self._explain_closed(rows, given))
        self.now.losses[rows[is_open]], self.now.told[rows[is_open]] = losses[is_open], True
        return int(is_open.sum())

    def _find_rows(self, given: NDArray[Any] | None) -> Numbers:
        """The rows that are meant, −1 for points that are none."""
        num, dim = self.now.points.shape
        if given is None:
            return np.arange(num)
        if given.ndim == 2:
            if given.shape[1] != dim:
                raise ObjectiveError(f"tell: points must have shape (n, {dim}), got {given.shape}")
            return self.now.find_rows(given.astype(np.float64))
        if given.size and given.dtype.kind not in "iu":
            raise ObjectiveError(
                f"tell: give points as ask() returned them, {(num, dim)}, or their numbers, got "
                f"{given.dtype}{given.shape}"
            )
        if given.size and (given.min() < 0 or given.max() >= num):
            raise ObjectiveError(f"tell: indices must lie in 0..{num - 1}, got {given}")
        return given.astype(np.intp)

    def _explain_closed(self, rows: Numbers, given: NDArray[Any] | None) -> str:
        """Why some of the points are not open."""
        if given is None or not (rows < 0).any():
            return "tell: some points were told already; see `pending`"
        point = given[rows < 0][0].astype(np.float64)
        key = crc32(_as_key(point))
        seen = next((number for number, sums in reversed(self._past) if key in sums), None)
        if seen is not None:
            return self._explain_late(seen)
        return (
            f"tell: {_shorten(point.tolist())} is no point of generation {self.now.number}; tell "
            "points as ask() gave them"
        )

    def _explain_late(self, seen: int) -> str:
        if not seen:
            return "tell: nothing has been asked yet; call ask() first"
        return (
            f"tell: these losses are of generation {seen}, which is complete; the search is at "
            f"generation {self.now.number}, and ask() gives its points"
        )

    def state_dict(self) -> dict[str, Any]:
        """Numbers and losses; points can be made again."""
        return {
            "generation": self.now.number,
            "asked": self._asked,
            "losses": torch.from_numpy(self.now.losses.copy()),
            "told": torch.from_numpy(self.now.told.copy()),
        }

    def load_state_dict(self, saved: Mapping[str, Any], points: Vector) -> None:
        """Resume a generation of these points."""
        self._past.clear()
        self.now = Generation(int(saved["generation"]), points)
        self.now.losses[:], self.now.told[:] = saved["losses"].numpy(), saved["told"].numpy()
        self._asked = int(saved["asked"])


def _as_numbers(points: ArrayLike) -> NDArray[Any]:
    try:
        given = np.asarray(points)
        known = given.dtype.kind in "iuf"
    except (TypeError, ValueError):
        known = False
    if not known:
        raise ObjectiveError(f"tell: points must be numbers, got {_shorten(points)}")
    return given


def _shorten(value: object) -> str:
    return repr(value)[:80]
