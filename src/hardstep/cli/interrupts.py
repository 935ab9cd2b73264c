"""Ctrl-C and `kill` while a command has a result: it is kept, and the end does not wait.

first, while `raised`      raises KeyboardInterrupt there, once
first, anywhere else       noted: what is being written is written to its end, unless nobody
                           reads it
second                     raises KeyboardInterrupt at once
"""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

PATIENCE = 0.5  # seconds with a reader that takes nothing, after a signal
RETRY = 0.02  # seconds after a moment at which nothing can be raised
_NUMBERS = (signal.SIGINT, signal.SIGTERM)


class Interrupts:
    """Hears the signals of a block; outside the main thread it hears none."""

    def __init__(self) -> None:
        self.noted = False
        self._raising = self._writing = False
        self._before: dict[int, Any] = {}

    def __enter__(self) -> "Interrupts":
        if threading.current_thread() is threading.main_thread():
            for number in _NUMBERS:
                if callable(signal.getsignal(number)):  # a background job ignores Ctrl-C
                    self._before[number] = signal.signal(number, self._hear)
            if hasattr(signal, "SIGALRM") and self._before:
                self._before[signal.SIGALRM] = signal.signal(signal.SIGALRM, self._raise_late)
        return self

    def __exit__(self, *_: object) -> None:
        self._set_timer(0)
        for number, handler in self._before.items():
            signal.signal(number, handler)

    @contextmanager
    def raised(self) -> Iterator[None]:
        """A block in which the first signal raises KeyboardInterrupt."""
        self._raising = True
        if self.noted:
            raise KeyboardInterrupt
        try:
            yield
        finally:
            self._raising = False

    def write(self, write: Callable[[str], Any], text: str) -> None:
        """Write a part of the result; after a signal, only as long as somebody reads."""
        self._writing = True
        if self.noted:
            self._set_timer(PATIENCE)
        try:
            write(text)
        finally:
            self._writing = False
            self._set_timer(0)

    def _hear(self, number: int, frame: FrameType | None) -> None:
        del number
        again, self.noted = self.noted, True
        if again or self._raising:
            self._raise(frame)
        elif self._writing:
            self._set_timer(PATIENCE)

    def _raise_late(self, number: int, frame: FrameType | None) -> None:
        del number
        self._raise(frame)

    def _raise(self, frame: FrameType | None) -> None:
        if _loses_exceptions(frame):
            self._set_timer(RETRY)
            return
        self._raising = False
        raise KeyboardInterrupt

    def _set_timer(self, seconds: float) -> None:
        if self._before and hasattr(signal, "SIGALRM"):
            signal.setitimer(signal.ITIMER_REAL, seconds)


def _loses_exceptions(frame: FrameType | None) -> bool:
    """Whether C called what runs now, and drops what it raises: finalizers, LLVM's callbacks."""
    while frame is not None:
        if frame.f_code.co_name == "__del__" or "llvmlite" in frame.f_code.co_filename:
            return True
        frame = frame.f_back
    return False
