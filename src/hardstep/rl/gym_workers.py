"""Worker processes that play a gymnasium environment.

    parent → worker   an environment, then again and again (policies, pairs, statistics)
    worker → parent   the list of outcomes, or the error

Workers are plain subprocesses: `multiprocessing` would run the user's script once more in each of
them. They do not hear Ctrl-C, and end when their parent closes the connection or ends.
"""

import importlib.util
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection, Pipe, wait
from typing import Any, NamedTuple

from hardstep.errors import ConfigError, HardstepError, ObjectiveError
from hardstep.rl.gym_play import Outcome, Pair, Player, quote, silence
from hardstep.rl.stacks import Stack

SHARE = 8  # messages that a worker gets per call, about: the last ones even out the load
PATIENCE = 2.0  # seconds that a worker may take to end
MODULE = "define it at the top of a module that can be imported, or give processes=0"
START = "import sys; sys.path[:] = {path!r}; from {module} import serve; serve({number}, {parent})"


class Parcel(NamedTuple):
    """An environment on its way to a worker."""

    pickled: bytes
    module: str | None  # where its factory is defined,
    file: str | None  # for workers that cannot import it by that name
    name: str
    horizon: int


def pack(source: Any, name: str, horizon: int) -> Parcel:
    """What workers need to make the environment.

    Raises:
        ConfigError: It cannot be sent.
    """
    what = f"Gym: the factory of {name} cannot be sent to a worker process"
    inner = getattr(source, "func", source)  # of a functools.partial
    module = getattr(inner, "__module__", None)
    if callable(source) and module == "__main__":
        raise ConfigError(f"{what}, it is defined in the script that is run; {MODULE}")
    try:
        pickled = pickle.dumps(source)
    except Exception as error:
        raise ConfigError(f"{what} ({quote(error)}); {MODULE}") from error
    file = getattr(sys.modules.get(module or ""), "__file__", None)
    return Parcel(pickled, module, file, name, horizon)


class Crew:
    """Worker processes, each with an environment of its own.

    Args:
        parcel: What they play.
        num: How many there are.
    """

    def __init__(self, parcel: Parcel, num: int) -> None:
        self._name = parcel.name
        self._workers: list[tuple[Connection, subprocess.Popen[bytes]]] = []
        self._finalizer = weakref.finalize(self, _end, self._workers, os.getpid())
        for _ in range(num):
            self._workers.append(_start())
        for connection, process in self._workers:
            with _name_death(self._name, process):
                connection.send(parcel)

    @property
    def pids(self) -> list[int]:
        """The process IDs."""
        return [process.pid for _, process in self._workers]

    def play(self, policies: Stack, pairs: Sequence[Pair], statistics: bool) -> list[Outcome]:
        """An episode for every pair, in the order of the pairs.

        Raises:
            HardstepError: An environment failed or a worker died; all workers have ended then.
        """
        try:
            return self._play(policies, pairs, statistics)
        except BaseException:  # Ctrl-C, too
            self.close()
            raise

    def _play(self, policies: Stack, pairs: Sequence[Pair], statistics: bool) -> list[Outcome]:
        size = max(1, -(-len(pairs) // (SHARE * len(self._workers))))
        starts = iter(range(0, len(pairs), size))
        processes = dict(self._workers)
        under_way: dict[Connection, int] = {}
        outcomes: dict[int, list[Outcome]] = {}

        def hand_out(connection: Connection) -> None:
            start = next(starts, None)
            if start is not None:
                with _name_death(self._name, processes[connection]):
                    connection.send((*_cut(policies, pairs[start : start + size]), statistics))
                under_way[connection] = start

        for connection in processes:
            hand_out(connection)
        while under_way:
            for ready in wait(list(under_way)):
                assert isinstance(ready, Connection)
                with _name_death(self._name, processes[ready]):
                    answer = ready.recv()
                if isinstance(answer, HardstepError):
                    raise answer
                outcomes[under_way.pop(ready)] = answer
                hand_out(ready)
        return [outcome for start in sorted(outcomes) for outcome in outcomes[start]]

    def close(self) -> None:
        """End all workers."""
        self._finalizer()


@contextmanager
def _name_death(name: str, process: subprocess.Popen[bytes]) -> Iterator[None]:
    """Say of a broken connection that the worker behind it died."""
    try:
        yield
    except (EOFError, OSError) as error:
        with suppress(subprocess.TimeoutExpired):
            process.wait(PATIENCE)
        code = process.poll()
        how = f"with code {code}"
        if code is not None and code < 0:
            with suppress(ValueError):
                how = f"by {signal.Signals(-code).name}"
        raise ObjectiveError(
            f"Gym: a worker process of {name} was ended {how}; memory may have run out, give fewer "
            "processes, or processes=0 to play in this one"
        ) from error


def _cut(policies: Stack, pairs: Sequence[Pair]) -> tuple[Stack, list[Pair]]:
    """The policies of these pairs only; pairs are in the order of policies."""
    first, last = pairs[0][0], pairs[-1][0]
    return policies.take(first, last + 1), [(policy - first, seed) for policy, seed in pairs]


def _start() -> tuple[Connection, subprocess.Popen[bytes]]:
    ours, theirs = Pipe()
    start = START.format(path=sys.path, module=__name__, number=theirs.fileno(), parent=os.getpid())
    # One thread each: products are small, and there are as many workers as processors.
    threads = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    process = subprocess.Popen(
        [sys.executable, "-c", start],
        stdin=subprocess.DEVNULL,
        pass_fds=[theirs.fileno()],
        start_new_session=True,  # a terminal's Ctrl-C does not reach it
        env={**os.environ, **threads},
    )
    theirs.close()
    return ours, process


def _end(workers: list[tuple[Connection, subprocess.Popen[bytes]]], owner: int) -> None:
    if os.getpid() != owner:  # a fork of the process that started them
        return
    for connection, process in workers:
        connection.close()
        process.terminate()
    for _, process in workers:
        try:
            process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    workers.clear()


def serve(number: int, parent: int) -> None:
    """Play what comes over the connection of this number, until it closes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()
    connection = Connection(number)
    with suppress(EOFError, OSError):
        for answer in _answer(connection):
            connection.send(answer)


def _answer(connection: Connection) -> Iterator[list[Outcome] | HardstepError]:
    parcel: Parcel = connection.recv()
    player: Player | HardstepError
    try:
        player = Player(_unpack(parcel), parcel.name, parcel.horizon)
    except Exception as error:
        player = ConfigError(
            f"Gym: a worker process cannot make {parcel.name} ({quote(error)}); {MODULE}"
        )
    while True:
        job = connection.recv()
        if isinstance(player, HardstepError):
            yield player
            continue
        try:
            answer: list[Outcome] | HardstepError = player.play(*job)
        except HardstepError as error:
            answer = error
        yield answer


def _unpack(parcel: Parcel) -> Any:
    """The environment's specification or factory; a task file is loaded under its name."""
    with silence():
        try:
            return pickle.loads(parcel.pickled)
        except ModuleNotFoundError:
            if parcel.module is None or parcel.file is None or parcel.module in sys.modules:
                raise
            spec = importlib.util.spec_from_file_location(parcel.module, parcel.file)
            assert spec is not None
            assert spec.loader is not None
            sys.modules[parcel.module] = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(sys.modules[parcel.module])
            return pickle.loads(parcel.pickled)


def _end_with(parent: int) -> None:
    """End this process when its parent has ended, even in the middle of an episode."""
    while os.getppid() == parent:
        time.sleep(1.0)
    os._exit(1)
