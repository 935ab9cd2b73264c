"""Signals around a result: raised while it is searched, noted while it is written."""

import os
import signal
import time

import pytest

from hardstep.cli import interrupts
from hardstep.cli.interrupts import Interrupts


@pytest.fixture(autouse=True)
def handlers():
    """Ours, as the program sets them up; put back afterwards."""
    before = {n: signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM, signal.SIGALRM)}
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    yield
    after = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGALRM)
    for number, handler in before.items():
        signal.signal(number, handler)
    assert after == (before[signal.SIGINT], before[signal.SIGALRM])


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_first_one_is_raised_where_asked_for_and_the_next_one_anywhere(number):
    with Interrupts() as heard:
        with pytest.raises(KeyboardInterrupt), heard.raised():
            signal.raise_signal(number)
        assert heard.noted
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(number)


def test_one_that_came_before_is_raised_on_entry():
    with Interrupts() as heard:
        signal.raise_signal(signal.SIGTERM)
        with pytest.raises(KeyboardInterrupt), heard.raised():
            raise AssertionError


def test_what_is_being_written_is_written_to_its_end():
    written = []

    def write(text):
        signal.raise_signal(signal.SIGTERM)
        written.append(text)

    with Interrupts() as heard:
        heard.write(write, "one")
        heard.write(written.append, "two")
        time.sleep(0.01)
    assert (written, heard.noted) == (["one", "two"], True)


@pytest.mark.parametrize("early", [True, False])
def test_a_reader_that_takes_nothing_is_not_waited_for(monkeypatch, early):
    monkeypatch.setattr(interrupts, "PATIENCE", 0.05)
    unread, full = os.pipe()

    def write(text):
        if not early:
            signal.raise_signal(signal.SIGTERM)
        os.write(full, text.encode())

    try:
        with Interrupts() as heard:
            if early:
                signal.raise_signal(signal.SIGTERM)
            with pytest.raises(KeyboardInterrupt):
                heard.write(write, "x" * (1 << 22))
    finally:
        os.close(unread)
        os.close(full)


def test_an_ignored_signal_stays_ignored():
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with Interrupts() as heard, heard.raised():
            signal.raise_signal(signal.SIGINT)
        assert not heard.noted
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def test_one_that_comes_in_a_finalizer_is_raised_after_it():
    """Python drops what a finalizer raises, and LLVM what its callbacks raise."""

    class Ends:
        def __del__(self):
            signal.raise_signal(signal.SIGTERM)

    def finalize_and_wait():
        Ends()
        time.sleep(5)
        raise AssertionError

    with Interrupts() as heard, pytest.raises(KeyboardInterrupt), heard.raised():
        finalize_and_wait()
