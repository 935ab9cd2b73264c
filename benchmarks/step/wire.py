"""Two processes, one JSON object per line: the driver asks, a worker answers.

A worker is a module with a table of handlers, run in its own interpreter, so the two packages
never share a process, a thread pool or an allocator. It sits in a blocking read between requests.
"""

import json
import os
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self

Handler = Callable[..., dict[str, Any]]
ROOT = Path(__file__).resolve().parents[2]


class Worker:
    """A worker process, seen from the driver.

    Args:
        python: The interpreter of its environment.
        module: What to run.
        threads: How many threads its libraries may use.
        variables: Further environment variables.
    """

    def __init__(
        self, python: Path, module: str, threads: int, variables: Mapping[str, str] | None = None
    ) -> None:
        names = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")
        limits = dict.fromkeys(names, str(threads))
        self.name = module
        self._process = subprocess.Popen(
            [str(python), "-W", "ignore", "-m", module],
            cwd=ROOT,
            env={**os.environ, **limits, **(variables or {})},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def ask(self, request: str, **arguments: Any) -> dict[str, Any]:
        """The answer to one request.

        Raises:
            RuntimeError: The worker failed; carries its traceback.
        """
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({"request": request, **arguments}) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            code = self._process.wait()
            raise RuntimeError(f"{self.name} ended with code {code} while asked to {request}")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise RuntimeError(f"{self.name} failed at {request}:\n{answer['error']}")
        return answer

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is not None:
            self._process.kill()
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


def serve(handlers: Mapping[str, Handler]) -> None:
    """Answer requests until the driver closes the pipe."""
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # what libraries print is not an answer
    for line in sys.stdin:
        arguments = json.loads(line)
        try:
            answer = handlers[arguments.pop("request")](**arguments)
        except Exception:
            answer = {"error": traceback.format_exc()}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


@contextmanager
def timed() -> Iterator[dict[str, float]]:
    """Fills in `wall` and `cpu` seconds of the block; CPU time includes all threads.

    `foreign` is the CPU time that other processes took meanwhile, to about ten milliseconds.
    """
    found: dict[str, float] = {}
    busy, wall, cpu = _busy(), time.perf_counter(), time.process_time()
    try:
        yield found
    finally:
        found["wall"] = time.perf_counter() - wall
        found["cpu"] = time.process_time() - cpu
        found["foreign"] = max(0.0, _busy() - busy - found["cpu"])


def _busy() -> float:
    """CPU seconds of the whole machine since it started; 0 where the kernel does not tell."""
    try:
        line = Path("/proc/stat").read_text().splitlines()[0]
    except OSError:
        return 0.0
    user, nice, system, _, _, interrupts, soft, stolen, *_ = map(int, line.split()[1:])
    return (user + nice + system + interrupts + soft + stolen) / os.sysconf("SC_CLK_TCK")
