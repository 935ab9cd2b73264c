"""Tiles handed out until all are answered: the loop between a driver and its workers.

A tile evaluated twice has the same rows, so it is handed out again when its worker is lost, when it
raises, when it is slow, and when a loss is not finite. Rows are stored by index, and an answer with
another key is dropped.
"""

import statistics
import time
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, CancelledError, Future, wait
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from hardstep._text import to_sentence
from hardstep.distributed.counts import Counts
from hardstep.distributed.cuts import Range
from hardstep.distributed.messages import Answer, Key, Misfit, Need, Task
from hardstep.distributed.patience import Patience
from hardstep.errors import HardstepError, WorkerError
from hardstep.evaluation.sharing import Unfit

AHEAD = 2  # tiles per worker that are handed out at a time, so that none waits for the next
NEEDS = 20  # times that a tile may meet a worker that lacks something
TICK = 0.25  # seconds between looks at stragglers


class Port(Protocol):
    """An engine, as the loop sees it."""

    @property
    def workers(self) -> int:
        """How many there are, about."""
        ...

    def submit(self, task: Task) -> "Future[Any]":
        """Hand out a tile."""
        ...

    def renew(self, error: BaseException) -> None:
        """Make the engine usable again after it broke.

        Raises:
            WorkerError: It cannot be.
        """
        ...

    def is_loss(self, error: BaseException) -> bool:
        """Whether an exception of a tile means that its worker is gone."""
        ...

    def unwrap(self, error: Exception) -> Exception:
        """The exception that a tile raised, without what the engine has put around it."""
        ...

    def tend(self) -> None:
        """Called a few times a second while tiles are out."""
        ...


@dataclass
class _Tile:
    task: Task
    failures: int = 0
    needs: int = 0
    first: float = 0.0  # when it was handed out, and when again
    submitted: float = 0.0
    flying: set["Future[Any]"] = field(default_factory=set)
    doubtful: NDArray[np.float64] | None = None
    seconds: float = 0.0
    start: int = 0
    rows: NDArray[np.float64] | None = None


class Handout:
    """One question to all candidates.

    Args:
        port: The engine.
        tasks: A tile each; their ranges follow each other.
        supply: What a task lacks, sent along.
        patience: With failures.
        counts: Of the run.
        meanwhile: Done once, when the last tiles are out and some worker has none.
    """

    def __init__(
        self,
        port: Port,
        tasks: Iterable[Task],
        supply: Callable[[Task, Need], Task],
        patience: Patience,
        counts: Counts,
        meanwhile: Callable[[], None] | None = None,
    ) -> None:
        self.port, self.supply, self.patience, self.counts = port, supply, patience, counts
        self.meanwhile = meanwhile
        self.tiles = {task.key: _Tile(task) for task in tasks}
        self.waiting = deque(self.tiles)
        self.flying: dict[Future[Any], Key] = {}
        self.seconds: list[float] = []
        self.renewals = 0
        self.given_up = self.left_out = False
        self.missing = np.zeros(max(key.stop for key in self.tiles), dtype=bool)

    def collect(self) -> Tensor:
        """The rows of all tiles, in order.

        Raises:
            Unfit: The question has to be asked again.
            WorkerError: There is nobody left to answer, or answers do not fit together.
        """
        began = last = time.monotonic()
        while any(tile.rows is None for tile in self.tiles.values()):
            self._hand_out()
            self._use_idle_core()
            done, _ = wait(self.flying, timeout=TICK, return_when=FIRST_COMPLETED)
            for future in done:
                last = time.monotonic()
                self._take(future)
            if time.monotonic() - last > self.patience.timeout:
                raise WorkerError(
                    f"no worker has answered for {self.patience.timeout:g} s; look whether they "
                    "run, or allow more with timeout="
                )
            self.port.tend()
            self._hand_out_stragglers()
            if self.patience.quorum < 1:
                self._leave_out_stragglers()
        self.counts.available += (time.monotonic() - began) * max(1, self.port.workers)
        for future in self.flying:
            future.add_done_callback(self._drop)
        return self._join()

    def _drop(self, future: "Future[Any]") -> None:
        if not future.cancelled() and future.exception() is None:
            self.counts.dropped += 1

    def _hand_out(self) -> None:
        """Keep every worker busy; tiles that are late may be lost, and hold no place."""
        late = time.monotonic() - self._find_limit()
        held = sum(self.tiles[key].submitted > late for key in self.flying.values())
        most = len(self.flying) - held + AHEAD * max(1, self.port.workers)
        while self.waiting and len(self.flying) < most:
            key = self.waiting.popleft()
            if self.tiles[key].rows is None:
                self._submit(key)

    def _use_idle_core(self) -> None:
        """Do what was offered: on one machine, a worker that waits has left a core free."""
        work = self.meanwhile
        if work is not None and not self.waiting and len(self.flying) < self.port.workers:
            self.meanwhile = None
            work()

    def _submit(self, key: Key) -> None:
        tile = self.tiles[key]
        try:
            future = self.port.submit(tile.task)
        except BrokenExecutor as error:
            self._renew(error)
            self.waiting.append(key)
            return
        self.counts.bytes_sent += tile.task.nbytes
        tile.submitted = time.monotonic()
        tile.first = tile.first or tile.submitted
        tile.flying.add(future)
        self.flying[future] = key

    def _renew(self, error: BaseException) -> None:
        self.renewals += 1
        if self.renewals > self.patience.tries * AHEAD * max(1, self.port.workers):
            raise WorkerError(
                f"tiles were lost with their workers {self.renewals} times without an answer, the "
                f"last time with {to_sentence(f'{type(error).__name__}: {error}')[:200]}; look for "
                "what ends them, such as memory"
            ) from error
        self.port.renew(error)

    def _take(self, future: "Future[Any]") -> None:
        if future not in self.flying:  # given up when the engine broke
            return
        key = self.flying.pop(future)
        tile = self.tiles[key]
        tile.flying.discard(future)
        try:
            reply = future.result()
        except BrokenExecutor as error:
            self._abandon()
            self._renew(error)
        except CancelledError:
            self.waiting.append(key)
        except Exception as error:
            self._retry(key, self.port.unwrap(error))
        else:
            self._read(key, reply)

    def _abandon(self) -> None:
        """All that flies is lost with the engine."""
        for key in set(self.flying.values()):
            self.tiles[key].flying.clear()
        self.flying.clear()
        self.counts.retries += sum(tile.rows is None for tile in self.tiles.values())
        self.waiting = deque(key for key, tile in self.tiles.items() if tile.rows is None)

    def _retry(self, key: Key, error: Exception) -> None:
        tile, lost = self.tiles[key], self.port.is_loss(error)
        if lost:
            self._renew(error)
        elif isinstance(error, HardstepError):
            raise error  # of the objective or the version; another try would raise it, too
        if tile.rows is not None:
            return
        tile.failures += not lost
        self.counts.reason = to_sentence(f"{type(error).__name__}: {error}")[:200]
        if tile.failures < self.patience.tries:
            self.counts.retries += 1
            self.waiting.appendleft(key)
        elif self.patience.failed == "raise":
            error.add_note(
                f"hardstep: candidates {key.start}..{key.stop - 1} of question {key.step} raised "
                f"this {tile.failures} times"
            )
            raise error
        else:
            self.counts.failed += 1
            tile.rows = np.empty(0)
            self.given_up = True

    def _read(self, key: Key, reply: Any) -> None:
        tile = self.tiles[key]
        if getattr(reply, "key", None) != key:
            self.counts.dropped += 1
            if not tile.flying and tile.rows is None:
                self.waiting.appendleft(key)
            return
        self.counts.names.add(reply.worker)
        if tile.rows is not None:
            self.counts.dropped += 1
        elif isinstance(reply, Need):
            self._send_along(tile, reply)
        elif isinstance(reply, Misfit):
            raise Unfit(reply.block, reply.tier, reply.reason)
        else:
            self._store(tile, reply)

    def _send_along(self, tile: _Tile, need: Need) -> None:
        tile.needs += 1
        if tile.needs > NEEDS:
            raise WorkerError(
                f"worker {need.worker} was sent the weights {tile.needs - 1} times and still does "
                "not have them; do its processes share one kind of machine?"
            )
        self.counts.needs += not need.step
        self.counts.drifted += need.moved
        task, tile.task = tile.task, self.supply(tile.task, need)
        self._submit(need.key)
        tile.task = task  # another copy may go to a worker that has everything

    def _store(self, tile: _Tile, answer: Answer) -> None:
        rows = np.frombuffer(answer.rows, dtype=np.float64).reshape(answer.shape)
        self.counts.bytes_received += len(answer.rows)
        self.counts.busy += answer.seconds
        self.seconds.append(answer.seconds)
        self.renewals = 0
        if not np.isfinite(rows).all() and tile.doubtful is None:
            tile.doubtful = rows
            self.counts.confirmed += 1
            self.waiting.appendleft(answer.key)
            return
        if tile.doubtful is not None and tile.doubtful.shape == rows.shape:
            worse = np.isfinite(rows).sum() < np.isfinite(tile.doubtful).sum()
            rows = tile.doubtful if worse else rows
        tile.start, tile.rows, tile.seconds = answer.start, rows, answer.seconds - answer.opening
        self.counts.tiles += 1

    def list_ranges(self) -> list[Range]:
        """What was answered, beginning where tiles of an evaluator do, and how long it took.

        Nothing, if some have not answered.
        """
        if self.given_up:
            return []
        found = [(tile.start, tile.rows, tile.seconds) for tile in self.tiles.values()]
        return [
            Range(start, start + len(rows), seconds)
            for start, rows, seconds in found
            if rows is not None and len(rows)
        ]

    def _hand_out_stragglers(self) -> None:
        if not self.seconds:
            return
        limit = self._find_limit()
        for key, tile in self.tiles.items():
            slow = tile.flying and time.monotonic() - tile.submitted > limit
            if tile.rows is None and slow and len(tile.flying) <= self.patience.tries:
                self.counts.duplicates += 1
                self._submit(key)

    def _find_limit(self) -> float:
        """Seconds after which a tile is slow."""
        usual = max(statistics.median(self.seconds or [0.0]), 1e-3) * AHEAD
        return max(self.patience.at_least, self.patience.straggling * usual)

    def _leave_out_stragglers(self) -> None:
        """Go on without tiles of which two copies are slow, if a quorum has answered."""
        left = [(key, tile) for key, tile in self.tiles.items() if tile.rows is None]
        unknown = sum(key.stop - key.start for key, _ in left)
        if not left or unknown > (1 - self.patience.quorum) * len(self.missing):
            return
        before = time.monotonic() - 2 * self._find_limit()
        if not all(tile.first and tile.first < before for _, tile in left):
            return
        for _, tile in left:
            tile.rows = np.empty(0)
        self.counts.left_out += len(left)
        self.given_up = self.left_out = True

    def _join(self) -> Tensor:
        """Rows by index; every candidate has exactly one, or NaN if its tile was given up."""
        found = [tile for tile in self.tiles.values() if tile.rows is not None and len(tile.rows)]
        num = max(key.stop for key in self.tiles)
        width = {tile.rows.shape[1:] for tile in found if tile.rows is not None} or {()}
        rows, filled = np.full((num, *width.pop()), np.nan), np.zeros(num, dtype=np.int64)
        for tile in found:
            assert tile.rows is not None
            end = tile.start + len(tile.rows)
            if end <= num:
                rows[tile.start : end] = tile.rows
                filled[tile.start : end] += 1
        if (filled > 1).any() or not (self.given_up or filled.all()):
            place = int(np.flatnonzero(filled != 1)[0])
            raise WorkerError(
                f"workers gave {filled[place]} answers for candidate {place}, so they do not cut a "
                "step alike; do all run the same versions of torch and hardstep?"
            )
        if self.left_out:
            self.missing = filled == 0
        return torch.from_numpy(rows)
