"""Ctrl-C and `kill` of the `hardstep` program: while it loads they end it, then they interrupt it.

An exception inside an import is no good there: it shows a traceback, and Python drops one that
comes in a callback of its import system. Nothing is begun yet, so the program just ends.

This module loads before all others, so it imports next to nothing.
"""

import os
import signal
import sys

INTERRUPTED = 130  # the exit code


def is_program() -> bool:
    """Whether this process is the program: `python -m hardstep`, or the command that pip makes."""
    called = os.path.basename(sys.argv[0]) if getattr(sys, "argv", None) else ""
    return sys.orig_argv[1:3] == ["-m", "hardstep"] or called == "hardstep"


class EndAtOnce:
    """A block in which Ctrl-C and `kill` end the process; a background job ignores Ctrl-C still."""

    def __init__(self, wanted: bool = True) -> None:
        numbers = (signal.SIGINT, signal.SIGTERM) if wanted else ()
        found = {number: signal.getsignal(number) for number in numbers}
        self._kept = {n: handler for n, handler in found.items() if handler != signal.SIG_IGN}

    def __enter__(self) -> None:
        for number in self._kept:
            signal.signal(number, _end)

    def __exit__(self, *raised: object) -> None:
        for number, handler in self._kept.items():
            signal.signal(number, handler)


def _end(signum: int, frame: object) -> None:
    try:
        os.write(2, b"hardstep: interrupted\n")
    finally:  # even if nobody can read it
        os._exit(INTERRUPTED)


def interrupt_on_kill() -> None:
    """Let `kill` do what Ctrl-C does: batch systems do not take a run's results with them."""
    signal.signal(signal.SIGTERM, _interrupt)


def _interrupt(signum: int, frame: object) -> None:
    interrupt = signal.getsignal(signal.SIGINT)
    if not callable(interrupt):  # a background job ignores Ctrl-C, but not this
        interrupt = signal.default_int_handler
    interrupt(signum, None)
