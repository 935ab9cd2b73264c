"""Files that commands read and write, looked at before the first run."""

import os
from pathlib import Path

from hardstep.bench.records import Loaded, load
from hardstep.errors import DataError


def check_writable(path: Path, option: str) -> None:
    """Refuse a path at which no file can be written; folders that are missing will be made.

    Raises:
        DataError: It is a folder, or lies where nothing can be written.
    """
    if path.is_dir():
        raise DataError(f"{path} is a folder; name a file in it with {option}")
    there = path if path.exists() else next(p for p in path.absolute().parents if p.exists())
    if there != path and not there.is_dir():
        raise DataError(f"{path} would lie in {there}, a file; name another with {option}")
    if not os.access(there, os.W_OK):
        raise DataError(
            f"{path} cannot be written: {there} is read-only; name another with {option}"
        )


def check_picture(path: Path, option: str) -> None:
    """Refuse what cannot be written, or is no kind of picture; nothing to check without matplotlib.

    Raises:
        DataError: As above, or its ending is not one of a picture.
    """
    check_writable(path, option)
    try:
        from matplotlib.backend_bases import FigureCanvasBase
    except ImportError:
        return
    endings = sorted(FigureCanvasBase.get_supported_filetypes())
    if path.suffix and path.suffix[1:].lower() not in endings:
        raise DataError(
            f"{path} does not end as a picture does; name another with {option}, ending in "
            f"{', '.join(endings)}"
        )


def recorded(path: Path) -> Loaded:
    """The records of a file that has to be there.

    Raises:
        DataError: It is not.
    """
    if not path.is_file():
        raise DataError(f"there is no file {path}; `hardstep bench run` writes such records")
    return load(path)
