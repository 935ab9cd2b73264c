"""Workers behind any `concurrent.futures.Executor`: a process pool, loky, Dask, submitit.

An executor cannot address a worker. So a tile may meet any process, which keeps what it was sent
and asks for what it lacks.
"""

import os
from collections.abc import Callable, Iterable
from concurrent.futures import Executor, Future
from contextlib import suppress
from functools import partial
from multiprocessing.process import BaseProcess
from threading import Thread
from typing import Any

from hardstep._checks import check_count
from hardstep._text import to_sentence
from hardstep.distributed.engine import TILES, Engine
from hardstep.distributed.messages import Task
from hardstep.distributed.patience import Patience
from hardstep.distributed.worker import evaluate
from hardstep.errors import ConfigError, WorkerError
from hardstep.evaluation import Evaluator

ENDED_WITHIN = 10.0  # seconds that processes have to end by themselves


class Futures(Engine):
    """Workers of an executor.

        with ProcessPoolExecutor(4, mp_context=get_context("spawn")) as pool:
            opt = PolyStep(model, evaluator=Futures(pool, workers=4))

    Args:
        executor: Where tiles are evaluated; or a function that makes one, which is called again
            when all of its processes are lost with one of them, as those of a process pool are.
        workers: How many there are; as many as processors if left out.
        evaluator: How a worker computes losses of a model; the one that the model brings along, or
            `Incremental()`, if left out.
        patience: What is done when workers fail.
        tiles: Per worker and step.
    """

    def __init__(
        self,
        executor: Executor | Callable[[], Executor],
        workers: int | None = None,
        *,
        evaluator: Evaluator | None = None,
        patience: Patience | None = None,
        tiles: int = TILES,
    ) -> None:
        super().__init__(evaluator, patience, tiles)
        if workers is not None:
            check_count("Futures: workers", workers)
        self._workers = workers or os.cpu_count() or 1
        self._make = None if hasattr(executor, "submit") else executor
        if self._make is not None and not callable(self._make):
            raise ConfigError(
                "Futures: executor must be an Executor such as ProcessPoolExecutor(4), or a "
                f"function that makes one, got {executor!r}"
            )
        self._executor: Any = executor if self._make is None else self._make()

    def __enter__(self) -> "Futures":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the executor, if this made it; processes that hang are killed."""
        if self._make is None:
            return
        processes = list_processes(self._executor)
        end = partial(self._executor.shutdown, wait=True, cancel_futures=True)
        ending = Thread(target=end, daemon=True)
        ending.start()
        ending.join(ENDED_WITHIN)
        if ending.is_alive():
            kill(processes)
            ending.join(ENDED_WITHIN)

    @property
    def workers(self) -> int:
        """How many there are."""
        return self._workers

    def submit(self, task: Task) -> "Future[Any]":
        """Hand out a tile."""
        future: Future[Any] = self._executor.submit(evaluate, task)
        return future

    def renew(self, error: BaseException) -> None:
        """A new executor, from the function that makes them."""
        if self._make is None:
            raise WorkerError(
                "the executor lost a process and ended all others "
                f"({type(error).__name__}: {to_sentence(str(error))}); give Futures a function "
                "that makes executors, and a new one takes over"
            ) from error
        self.counts.lost += 1  # at least; an executor does not tell
        processes = list_processes(self._executor)
        self._executor.shutdown(wait=False, cancel_futures=True)
        kill(processes)  # the pool asks them to end, which one that is stopped does not hear
        self._executor = self._make()


def list_processes(executor: Any) -> list[BaseProcess]:
    """The processes of a pool of Python's; other executors look after theirs."""
    return list((getattr(executor, "_processes", None) or {}).values())


def kill(processes: Iterable[BaseProcess]) -> None:
    """End processes, also those that are stopped."""
    for process in processes:
        with suppress(ValueError, AttributeError, OSError):  # closed, or of another package
            process.kill()
