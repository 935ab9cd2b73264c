"""The `hardstep` command."""

import os
import signal
import sys
from types import FrameType

from hardstep.cli.commands import app
from hardstep.errors import HardstepError


def main() -> None:
    """Entry point: errors of ours are one sentence and exit code 2."""
    # Before torch and numba load: threads that spin while they wait make a step many times slower
    # as soon as another process wants a core, and gain nothing worth that where none does.
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        app()
    except HardstepError as error:
        print(f"hardstep: {error}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        sys.exit(130)


def _interrupt(signum: int, frame: FrameType | None) -> None:
    """Do what Ctrl-C would do: `kill` and batch systems do not take a run's results with them."""
    interrupt = signal.getsignal(signal.SIGINT)
    if not callable(interrupt):  # a background job ignores Ctrl-C, but not this
        interrupt = signal.default_int_handler
    interrupt(signum, frame)
