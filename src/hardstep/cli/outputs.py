"""Files that commands read and write, looked at before the first run."""

import os
from pathlib import Path
from tempfile import TemporaryFile

from hardstep.bench.records import Loaded, load
from hardstep.errors import DataError


def check_writable(path: Path, option: str) -> None:
    """Refuse a path at which no file can be written; folders that are missing will be made.

    Raises:
        DataError: It is a folder, or lies where nothing can be written.
    """
    if os.path.isdir(path):
        raise DataError(f"{path} is a folder; name a file in it with {option}")
    _check_place(path, option)


def check_folder(path: Path, option: str) -> None:
    """Refuse a path at which there can be no folder with files in it; it is not made yet.

    Raises:
        DataError: It is a file, or lies where nothing can be written.
    """
    if os.path.exists(path) and not os.path.isdir(path):
        raise DataError(f"{path} is a file; name a folder with {option}")
    _check_place(path, option)


def _check_place(path: Path, option: str) -> None:
    """Try the nearest folder there is: its permissions alone do not say whether it takes files."""
    there = next(place for place in (path, *path.absolute().parents) if os.path.exists(place))
    if there != path and not os.path.isdir(there):
        raise DataError(f"{path} would lie in {there}, a file; name another with {option}")
    if not os.access(there, os.W_OK):
        raise DataError(
            f"{path} cannot be written: {there} is read-only; name another with {option}"
        )
    if os.path.isdir(there):
        try:
            with TemporaryFile(dir=there):
                pass
        except OSError as error:
            raise DataError(
                f"{path} cannot be written: {there} takes no files ({error.strerror}); name "
                f"another with {option}"
            ) from error


def picture_file(path: Path) -> Path:
    """The file that a picture is drawn to: a PNG, if the path has no ending and is no folder."""
    if path.suffix or os.path.isdir(path):
        return path
    return path.with_name(f"{path.name}.png")


def check_picture(path: Path, option: str) -> None:
    """Refuse what cannot be written, or is no kind of picture; nothing to check without matplotlib.

    Raises:
        DataError: As above, or its ending is not one of a picture.
    """
    path = picture_file(path)
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


def recorded(path: Path) -> Loaded:
    """The records of a file that has to be there, or of all such files in a folder.

    Raises:
        DataError: There is none.
    """
    files = sorted(path.glob("*.jsonl")) if path.is_dir() else [path]
    if not files:
        raise DataError(f"there is no file *.jsonl in {path}; name one with records, or its folder")
    if not files[0].is_file():
        raise DataError(f"there is no file {path}; `hardstep bench run` writes such records")
    parts = [load(file) for file in files]
    return Loaded(
        [record for part in parts for record in part.records],
        [sentence for part in parts for sentence in part.skipped],
    )
