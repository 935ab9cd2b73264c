"""Whatever a user's own code raises, as one sentence: what failed, why, and on which line."""

import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from textwrap import shorten

from hardstep.errors import ConfigError

MOST_CHARACTERS = 300  # of what torch and others say at length


@contextmanager
def refusing(what: str, path: Path, way_out: str = "") -> Iterator[None]:
    """Turn an error into a sentence; the error itself stays its cause.

    Args:
        what: Was tried: "own.py:small: data cannot be made".
        path: The user's file, whose line is named.
        way_out: What to do, if it is known.

    Raises:
        ConfigError: The code inside raised, whatever it was.
    """
    try:
        yield
    except (Exception, SystemExit) as error:
        said = error.msg if isinstance(error, SyntaxError) else str(error)
        reason = shorten(said, MOST_CHARACTERS, placeholder=" …").rstrip(".")
        line = _line(error, path)
        raise ConfigError(
            f"{what}: {type(error).__name__}{': ' if reason else ''}{reason}"
            f"{f' ({line})' if line else ''}{f'; {way_out}' if way_out else ''}"
        ) from error


def _line(error: BaseException, path: Path) -> str:
    """The line of the file that the error comes from; empty if it is from elsewhere."""
    if isinstance(error, SyntaxError) and error.filename:
        return f"line {error.lineno} of {Path(error.filename).name}"
    own = str(path.resolve())
    lines = [f.lineno for f in traceback.extract_tb(error.__traceback__) if f.filename == own]
    return f"line {lines[-1]} of {path.name}" if lines else ""
