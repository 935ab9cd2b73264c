"""Files that commands read and write, looked at before the first run."""

import os
import sys
from collections.abc import Sequence
from pathlib import Path

from hardstep._files import check_writable
from hardstep._text import to_sentence
from hardstep.bench.records import Loaded, find_files, load
from hardstep.cli.output import print
from hardstep.errors import DataError


def with_ending(path: Path) -> Path:
    """The file that a picture is drawn to: a PNG, if the path has no ending and is no folder."""
    if path.suffix or os.path.isdir(path):
        return path
    return path.with_name(f"{path.name}.png")


def check_picture(path: Path, option: str) -> None:
    """Refuse what cannot be written, or is no kind of picture; nothing to check without matplotlib.

    Raises:
        DataError: As above, or its ending is not one of a picture.
    """
    path = with_ending(path)
    check_writable(path, option)
    try:
        from matplotlib.backend_bases import FigureCanvasBase
    except ImportError:
        return
    endings = sorted(FigureCanvasBase.get_supported_filetypes())
    if path.suffix[1:].lower() not in endings:
        raise DataError(
            f"{path} does not end as a picture does; name another with {option}, ending in "
            f"{', '.join(endings)}"
        )


def read_records(path: Path) -> Loaded:
    """The records of a file that has to be there, or of all such files in a folder.

    Raises:
        DataError: There is none.
    """
    if not find_files(path) and os.path.isdir(path):
        raise DataError(f"there is no file *.jsonl in {path}; name one with records, or its folder")
    if not find_files(path):
        raise DataError(f"there is no file {path}; `hardstep bench run` writes such records")
    return load(path)


def list_skipped(skipped: Sequence[str]) -> None:
    """Name the lines of records that could not be used."""
    for sentence in skipped:
        print(f"skipped: {to_sentence(sentence)}", file=sys.stderr)
    if skipped:
        print(f"{len(skipped)} lines skipped; nothing was rewritten", file=sys.stderr)
