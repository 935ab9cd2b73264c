"""One batch of inputs in a process of its own, with limits of time and memory.

What it does is told through a pipe, one message per input; the input in progress is in a file, so
that it is known when the process ends in the middle.
"""

import faulthandler
import os
import resource
import shutil
import signal
import socket
import traceback
import warnings
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import NamedTuple

import torch

from tests.fuzz.answers import Fault, find_place
from tests.fuzz.findings import Finding
from tests.fuzz.target import Case, Target, remove

# Beside the folder with samples: its copy to work in, the input in progress, where a crash was.
COPY, CURRENT, DUMP = "copy", "current", "dump"


Feed = Callable[[Target, Callable[[Case], None]], None]  # calls the function with every input


class Broken(NamedTuple):
    """The fuzzer's own failure."""

    text: str


def guard(pipe: Connection, function: Callable[..., None], *args: object) -> None:
    """Run a function of this module in this process, and send None when it is done."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C ends the parent, which ends this one
    try:
        function(*args, pipe)
        pipe.send(None)
    except Exception:
        pipe.send(Broken(traceback.format_exc()))


def run_batch(target: Target, place: Path, feed: Feed, pipe: Connection) -> None:
    """Read every input and send its outcome; the samples are left as they are."""
    remove(place.parent / COPY)
    _enter(Path(shutil.copytree(place, place.parent / COPY, symlinks=True)))
    target.open()
    kept = _list_files()
    limit_memory(target.memory)
    with open(place.parent / DUMP, "w") as dump:
        faulthandler.enable(dump)

        def use(case: Case) -> None:
            (place.parent / CURRENT).write_bytes(bytes([case.exact]) + case.content)
            faulthandler.dump_traceback_later(target.seconds, exit=True, file=dump)
            outcome = read_one(target, case, kept)
            faulthandler.cancel_dump_traceback_later()
            pipe.send(outcome)

        feed(target, use)


def read_one(target: Target, case: Case, kept: set[str]) -> str | Finding:
    """The outcome of an input, which leaves no files behind."""
    try:
        outcome: str | Finding = target.read(case)
    except Fault as fault:
        outcome = Finding(target.name, fault.what, fault.where, fault.said, case)
    except BaseException as error:  # a task file may raise anything
        text = "".join(traceback.format_exception(error, limit=-12))[-4_000:]
        outcome = Finding(target.name, type(error).__name__, find_place(error), text, case)
    left = _list_files() - kept
    for name in sorted(left, reverse=True):
        remove(Path(name))
    if left and not isinstance(outcome, Finding):
        names = ", ".join(sorted(left))
        return Finding(target.name, "a file is left behind", target.name, names, case)
    return outcome


def prepare(target: Target, place: Path, pipe: Connection) -> None:
    """Write the samples, in a process of its own, so that this one has run nothing of ours."""
    place.mkdir(parents=True)
    _enter(place)
    target.prepare()


def limit_memory(extra: int) -> None:
    """Let the process take so many bytes more, where the system says how many it has."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[0])
    except OSError:
        return
    limit = pages * resource.getpagesize() + extra
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


def _enter(place: Path) -> None:
    """A folder of its own, a home that all targets share, no network."""
    os.chdir(place)
    home = place.parents[1] / "home"
    os.environ |= {"HOME": str(home), "XDG_CACHE_HOME": str(home / "cache")}
    os.environ.pop("HARDSTEP_DATA", None)
    os.environ["HYPOTHESIS_STORAGE_DIRECTORY"] = str(home / "hypothesis")
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    for sign in ({"module": "torch|numpy"}, {"message": ".*Triggered internally"}):
        warnings.filterwarnings("error", **sign)  # what torch warns of, we should have refused
    socket.getaddrinfo = _refuse_network  # type: ignore[assignment]


def _refuse_network(*args: object, **kwargs: object) -> list[tuple[object, ...]]:
    raise OSError("there is no network here")


def _list_files() -> set[str]:
    found = set()
    for folder, folders, files in os.walk("."):
        found.update(os.path.join(folder, name) for name in (*folders, *files))
    return found
