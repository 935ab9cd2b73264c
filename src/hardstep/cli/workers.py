"""Who evaluates for a command: this process, others beside it, ranks of torchrun, or a cluster."""

from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from functools import partial
from multiprocessing import get_context
from typing import Any

from hardstep.cli.options import TrainOptions
from hardstep.distributed import (
    Engine,
    Futures,
    Peers,
    Ray,
    end_with_parent,
    is_under_torchrun,
)
from hardstep.errors import ConfigError

Workers = Engine | Peers


@contextmanager
def open_workers(options: TrainOptions) -> Iterator[Workers | None]:
    """The workers that were asked for; nothing of them is left running."""
    asked = options.workers is not None or options.ray is not None
    if is_under_torchrun() and asked:
        raise ConfigError("torchrun starts the workers itself; leave --workers and --ray out")
    engine: Workers | None = None
    if is_under_torchrun():
        engine = Peers()
    elif options.ray is not None:
        engine = Ray(options.ray, workers=options.workers)
    elif options.workers is not None:
        make = partial(
            ProcessPoolExecutor,
            options.workers,
            mp_context=get_context("spawn"),
            initializer=end_with_parent,
        )
        engine = Futures(make, options.workers)
    try:
        yield engine
    finally:
        if engine is not None:
            engine.close()


def describe_workers(engine: Workers | None) -> dict[str, Any]:
    """What a run's result tells of them."""
    if engine is None:
        return {}
    return {"distributed": engine.counts.as_record(engine.workers)}
