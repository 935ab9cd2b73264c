"""Workers that are Ray actors: on a laptop, on a cluster, or one for every device.

An actor keeps model and data. Ray starts a dead one again, which then asks for what it lacks; tiles
that were lost with it are handed out again. Actors that the cluster has room for later join between
steps.
"""

import os
import re
import socket
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any

from hardstep._checks import check_count, check_positive
from hardstep._text import to_sentence
from hardstep.distributed.engine import TILES, Engine
from hardstep.distributed.messages import Task
from hardstep.distributed.patience import Patience
from hardstep.distributed.worker import Worker, keep_device
from hardstep.errors import ConfigError, WorkerError
from hardstep.evaluation import Evaluator

LOCAL = "local"
# What keeps Ray on loopback, since it replaces 127.0.0.1 by an address that others can reach.
_STAY_LOCAL = ("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")
REACHED_WITHIN = 5.0  # seconds
SAME_LOSS = 2.0  # seconds; all tiles of an actor are lost together, and count as one
RETRIES = 2  # Ray's own, of a task whose actor died; ours come after
RESTARTS = -1  # Ray's default is that an actor that dies stays dead


class _Actor:
    """What runs in a worker process; Ray makes an actor of it."""

    def __init__(self, name: str, prepare: Callable[[str], object] | None) -> None:
        self._worker = Worker(name)
        if prepare is not None:
            keep_device(prepare(name))

    def evaluate(self, task: Task) -> Any:
        """See `Worker.evaluate`."""
        return self._worker.evaluate(task)

    def is_there(self) -> bool:
        """Answers once the actor runs."""
        return True


class Ray(Engine):
    """Ray actors.

        with Ray(workers=4) as workers:
            opt = PolyStep(agent, evaluator=workers)

    Args:
        address: `local` starts Ray on this machine, listening on loopback only; else a cluster's,
            such as `auto` or `ray://host:10001`.
        workers: Actors; as many as the cluster has processors if left out.
        names: A name for every actor instead, such as those of boards.
        prepare: Called once in every actor with its name: open the board, calibrate it, return it.
            An objective finds it with `device()`. Called again when the actor is started again.
        options: For Ray, per actor: `{"num_gpus": 1}`, `{"resources": {"board": 1}}`.
        timeout: Seconds that a tile may take, also while it waits for the one before it or for its
            actor; one that exceeds it is started again. For devices that hang; no limit if left
            out.
        evaluator: How a worker computes losses of a model; see `Futures`.
        patience: What is done when workers fail.
        tiles: Per worker and step.

    Raises:
        WorkerError: Ray is not installed, or there is no cluster at the address.
    """

    def __init__(
        self,
        address: str = LOCAL,
        workers: int | None = None,
        *,
        names: list[str] | None = None,
        prepare: Callable[[str], object] | None = None,
        options: Mapping[str, Any] | None = None,
        timeout: float | None = None,
        evaluator: Evaluator | None = None,
        patience: Patience | None = None,
        tiles: int = TILES,
    ) -> None:
        super().__init__(evaluator, patience, tiles)
        if timeout is not None:
            check_positive("Ray: timeout", timeout)
        self._timeout = timeout
        self._since: dict[Future[Any], tuple[str, float]] = {}  # tiles that fly, to whom
        if workers is not None:
            check_count("Ray: workers", workers)
        if names is not None and (len(set(names)) != len(names) or not names):
            raise ConfigError(f"Ray: names must be different words, got {names!r}")
        self._ray, self._owns = open_ray(address, workers or (len(names) if names else None))
        total = workers or int(self._ray.cluster_resources().get("CPU", 1)) or 1
        self._names = names or [f"worker {number}" for number in range(total)]
        usual = {"num_cpus": 1, "max_restarts": RESTARTS, "max_task_retries": RETRIES}
        self._options = {**usual, **(options or {})}
        self._prepare = prepare
        self._actors: dict[str, Any] = {}
        self._load: dict[str, int] = {}  # tiles that fly to each
        self._starting: dict[Any, str] = {}  # what answers when an actor is up
        self._lost: dict[str, float] = {}  # when an actor was lost last
        self._fault = ""  # of the last one that did not start
        self._start()

    def __enter__(self) -> "Ray":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _start(self) -> None:
        make = self._ray.remote(_Actor).options(**self._options)
        for name in self._names:
            actor = make.remote(name, self._prepare)
            self._actors[name] = actor
            self._starting[actor.is_there.remote()] = name
        self.prepare()

    def prepare(self) -> None:
        """Take in the actors that have started; if there is none, wait for the first."""
        self._admit(0.0 if self._load else self._patience.timeout)
        if not self._load and not self._starting:
            raise WorkerError(f"no Ray actor could be started ({self._fault})")
        if not self._load:
            raise WorkerError(
                f"no Ray actor has started within {self._patience.timeout:g} s; has the cluster "
                f"{self._options} to give?"
            )

    def _admit(self, timeout: float) -> None:
        """Let actors that have started have tiles."""
        deadline = time.monotonic() + timeout
        while self._starting:
            left = max(0.0, deadline - time.monotonic())
            ready, _ = self._ray.wait(list(self._starting), num_returns=1, timeout=left)
            for ref in ready:
                name = self._starting.pop(ref)
                try:
                    self._ray.get(ref)
                except Exception as error:
                    self.counts.lost += 1
                    self._actors.pop(name)
                    self._fault = _shorten(error)
                else:
                    self._load[name] = 0
            if not ready or self._load:
                return

    @property
    def workers(self) -> int:
        """Actors that have started."""
        return len(self._load)

    def submit(self, task: Task) -> "Future[Any]":
        """Hand out a tile to the actor with the fewest."""
        if not self._load:  # all of them are being started again
            self.prepare()
        name = min(self._load, key=self._load.__getitem__)
        future: Future[Any] = self._actors[name].evaluate.remote(task).future()
        self._load[name] += 1
        self._since[future] = name, time.monotonic()
        future.add_done_callback(self._land)
        return future

    def _land(self, future: "Future[Any]") -> None:
        name, _ = self._since.pop(future, ("", 0.0))
        if name in self._load:
            self._load[name] -= 1

    def tend(self) -> None:
        """Start actors again that have not answered in time; without tiles until they are up."""
        self._admit(0.0)
        if self._timeout is None:
            return
        now = time.monotonic()
        flying = list(self._since.values())
        for name in {name for name, since in flying if now - since > self._timeout}:
            if name not in self._load:
                continue
            del self._load[name]
            self.counts.lost += 1
            self._ray.kill(self._actors[name], no_restart=False)
            self._starting[self._actors[name].is_there.remote()] = name

    def is_loss(self, error: BaseException) -> bool:
        """Whether an actor, its node or Ray's connection to it is gone."""
        errors = self._ray.exceptions
        return isinstance(error, errors.RayError) and not isinstance(error, errors.RayTaskError)

    def unwrap(self, error: Exception) -> Exception:
        """What a tile raised: Ray writes a page around it."""
        cause = getattr(error, "cause", None)
        wrapped = isinstance(error, self._ray.exceptions.RayTaskError)
        return cause if wrapped and isinstance(cause, Exception) else error

    def renew(self, error: BaseException) -> None:
        """Ray starts actors again by itself; one that it has given up is left out."""
        named = re.search(r"[0-9a-f]{32}", str(error))
        gone, now = named[0] if named else "", time.monotonic()
        if now - self._lost.get(gone, -SAME_LOSS) >= SAME_LOSS:
            self.counts.lost += 1
        self._lost[gone] = now
        if gone and isinstance(error, self._ray.exceptions.ActorDiedError):
            for name in [name for name, actor in self._actors.items() if gone in str(actor)]:
                self._load.pop(name, None)
        if not self._load and not self._starting:
            raise WorkerError(f"no Ray actor is left ({_shorten(error)})") from error

    def close(self) -> None:
        """End the actors, and Ray if this started it."""
        for actor in self._actors.values():
            self._ray.kill(actor)
        self._actors.clear()
        self._load.clear()
        if self._owns:
            self._ray.shutdown()


@contextmanager
def connect(address: str, workers: int | None) -> Iterator[Any]:
    """Ray, connected to a cluster or started here with so many processors; ended with the block."""
    ray, owns = open_ray(address, workers)
    try:
        yield ray
    finally:
        if owns:
            ray.shutdown()


def open_ray(address: str, workers: int | None) -> tuple[Any, bool]:
    """Ray, connected, and whether this process started it.

    Raises:
        WorkerError: It is not installed, or there is no cluster at the address.
    """
    if address == LOCAL and "ray" not in sys.modules:
        os.environ.setdefault(*_STAY_LOCAL)
    try:
        import ray
    except ImportError as error:
        raise WorkerError("Ray is not installed; pip install 'hardstep[ray]'") from error
    if ray.is_initialized():
        return ray, False
    if address == LOCAL and os.environ.get(_STAY_LOCAL[0]) != _STAY_LOCAL[1]:
        raise WorkerError(
            "Ray was imported before hardstep's Ray() and would listen on every network of this "
            f"machine; set {'='.join(_STAY_LOCAL)} before it is imported, or call ray.init() "
            "yourself"
        )
    _check_reachable(address)
    quiet: dict[str, Any] = {"logging_level": "ERROR", "log_to_driver": False}
    here = {"num_cpus": workers, "include_dashboard": False, "_node_ip_address": "127.0.0.1"}
    try:
        ray.init(**quiet, **(here if address == LOCAL else {"address": address}))
    except Exception as error:
        where = "on this machine" if address == LOCAL else f"at {address}"
        raise WorkerError(
            f"Ray could not be reached {where} ({_shorten(error)}); look at it with: ray status"
        ) from error
    _silence(ray)
    return ray, True


def _silence(ray: Any) -> None:
    """Keep off stdout what Ray has to say of lost workers; they are counted and replaced.

    `log_to_driver` keeps away what workers print, and not this. Should a new Ray have another name
    for it, its lines are seen again.
    """
    if hasattr(ray._private.worker, "_worker_logs_enabled"):
        ray._private.worker._worker_logs_enabled = False


def _check_reachable(address: str) -> None:
    """Refuse an address where nobody listens; Ray itself would try for minutes."""
    host, colon, port = address.rpartition("://")[2].rpartition(":")
    if not colon or not port.isdigit():
        return
    try:
        socket.create_connection((host, int(port)), timeout=REACHED_WITHIN).close()
    except (OSError, OverflowError) as error:
        raise WorkerError(
            f"Ray could not be reached at {address} ({_shorten(error)}); is the cluster up, and "
            "may this machine connect to it?"
        ) from error


def _shorten(error: BaseException) -> str:
    text = str(error).strip().splitlines()
    return to_sentence(f"{type(error).__name__}: {text[0] if text else ''}")[:200]
