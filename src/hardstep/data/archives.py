"""Finding the files of a data set on disk, and fetching them where they are missing.

Looked for, in this order: the folder named after the data set in `$HARDSTEP_DATA`, then in the
cache (`$XDG_CACHE_HOME/hardstep` or `~/.cache/hardstep`), then the mirror, whose files must have
the known SHA-256 and appear in the cache whole or not at all.
"""

import hashlib
import http.client
import os
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from hardstep._files import cache_folder, write_atomically
from hardstep.errors import DataError

_TIMEOUT_SECONDS = 30.0


@dataclass(frozen=True)
class Archive:
    """The files of one data set: its folder's name, where to fetch them, SHA-256 per file name."""

    name: str
    mirror: str
    checksums: Mapping[str, str]


def list_folders(name: str) -> list[Path]:
    """Where the files of a data set may be, in the order of looking; the last is in the cache."""
    provided = os.environ.get("HARDSTEP_DATA")
    own = [Path(provided, name)] if provided else []
    return [*own, cache_folder() / name]


def locate(archive: Archive) -> Path:
    """A folder holding every file of the archive, downloading them if need be.

    Raises:
        DataError: when they are neither on disk nor to be had from the mirror.
    """
    folders = list_folders(archive.name)
    cached = folders[-1]
    for folder in folders:
        if all((folder / name).is_file() for name in archive.checksums):
            return folder
    try:
        for name, checksum in archive.checksums.items():
            if not (cached / name).is_file():
                download(f"{archive.mirror}/{name}", cached / name, checksum)
    except (OSError, http.client.HTTPException, DataError) as error:
        unset = "" if folders[1:] else " (HARDSTEP_DATA is not set)"
        raise DataError(
            f"{archive.name}: looked for {', '.join(archive.checksums)} in "
            f"{' and '.join(map(str, folders))}{unset}, and could not fetch them "
            f"from {archive.mirror} ({error}); get them there yourself, put the files in a folder "
            f"{archive.name}/ and set HARDSTEP_DATA to its parent"
        ) from error
    return cached


def download(url: str, target: Path, checksum: str) -> None:
    """Write the file at the URL to the target, whole and verified, or not at all.

    Raises:
        DataError: when the SHA-256 of what arrived is another.
        OSError: when the file cannot be fetched or written.
        HTTPException: when the answer breaks off.
    """
    with urllib.request.urlopen(url, timeout=_TIMEOUT_SECONDS) as response:
        content = response.read()
    found = hashlib.sha256(content).hexdigest()
    if found != checksum:
        raise DataError(f"{url}: SHA-256 is {found}, expected {checksum}")
    with write_atomically(target) as temporary:
        temporary.write_bytes(content)
