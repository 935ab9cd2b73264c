"""The `hardstep` program: signals, output and errors. The rest loads inside `main` only."""

import atexit
import gc
import os
import sys
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

from hardstep._signals import INTERRUPTED, EndAtOnce, interrupt_on_kill


def main() -> None:
    """Entry point: what hardstep or the system refuses is one sentence and exit code 2."""
    # Before torch and numba load: threads that spin while they wait make a step many times slower
    # as soon as another process wants a core, and gain nothing worth that where none does.
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    with EndAtOnce():
        from hardstep.cli.commands import app
        from hardstep.cli.output import allow_any_character
        from hardstep.errors import HardstepError, HardstepWarning
    interrupt_on_kill()
    allow_any_character(sys.stdout)
    # Else Python looks through all that torch and numba hold before it ends, for some seconds.
    atexit.register(gc.freeze)
    warnings.showwarning = partial(_show_warning, HardstepWarning, warnings.showwarning)
    try:
        app()
    except HardstepError as error:
        if getattr(error, "told_by_all", False) and os.environ.get("RANK", "0") != "0":
            sys.exit(2)  # the first rank tells it
        _refuse(str(error))
    except OSError as error:  # the system's: a file that vanished, a disk that is full
        named = "" if error.filename is None else f"{error.filename}: "
        _refuse(f"{named}{error.strerror or error}")
    except KeyboardInterrupt:
        print("hardstep: interrupted", file=sys.stderr)
        sys.exit(INTERRUPTED)


def _refuse(reason: str) -> None:
    from hardstep._text import to_sentence

    print(f"hardstep: {to_sentence(reason)}", file=sys.stderr)
    sys.exit(2)


def _show_warning(
    ours: type[Warning],
    otherwise: Callable[..., None],
    message: Warning | str,
    category: type[Warning],
    *place: Any,
) -> None:
    """Print a warning of ours as one sentence: the line of code it names is none of the user's."""
    from hardstep._text import to_sentence

    if issubclass(category, ours):
        print(f"hardstep: {to_sentence(str(message))}", file=sys.stderr)
    else:
        otherwise(message, category, *place)
