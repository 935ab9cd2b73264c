"""Compiled code, kept for the next process in a folder that is ours alone.

To load an entry is to run it, so it is read only where nobody else can have written it:

    the way      every folder and link down to ours belongs to us or to the system, and nobody else
                 can rename what it holds: no other user can put a folder in the place of ours
    the folder   belongs to us, and is closed to everybody else
    the entry    is a file of ours that nobody else can write to and that has no second name: no
                 link, no pipe, nothing that was put here from elsewhere
    its digest   finds damage, which LLVM and pickle do not survive; it is no seal, as everybody
                 who can write a file can compute one

An entry that fails is removed and made again. A folder that fails is not used, and a warning says
so once.
"""

import grp
import hashlib
import os
import pwd
import stat
import warnings
from contextlib import suppress
from functools import cache
from pathlib import Path

from hardstep._files import cache_folder, write_atomically

_FOLDER = "kernels"
_DIGEST_BYTES = 32
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


def read_code(key: str) -> bytes | None:
    """What was kept under the key, unchanged; nothing if there is none that can be trusted.

    Args:
        key: Everything that the code depends on: its source, its compiler, the processor.
    """
    folder = _find_folder()
    if folder is None:
        return None
    path = folder / _name(key)
    try:
        kept = _read_own(path)
    except FileNotFoundError:
        return None
    except OSError:
        kept = b""
    code = kept[_DIGEST_BYTES:]
    if kept[:_DIGEST_BYTES] == _digest(key, code):
        return code
    with suppress(OSError):  # a folder stands there; to keep nothing costs time and no more
        path.unlink()
    return None


def keep_code(key: str, code: bytes) -> None:
    """Keep code for the next process; a folder that cannot be written costs nothing."""
    folder = _find_folder()
    if folder is None:
        return
    with suppress(OSError), write_atomically(folder / _name(key)) as temporary:
        temporary.chmod(0o600)
        temporary.write_bytes(_digest(key, code) + code)


def _name(key: str) -> str:
    return hashlib.sha256(key.encode()).hexdigest()[:32]


def _digest(key: str, code: bytes) -> bytes:
    """It covers the key: an entry under another's name is found, too."""
    return hashlib.sha256(hashlib.sha256(key.encode()).digest() + code).digest()


def _read_own(path: Path) -> bytes:
    """The content of a file that only we can have written; nothing if it is another's."""

    def open_itself(path: str, flags: int) -> int:
        """Follow no link, and do not wait at a pipe for somebody to write."""
        return os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK)

    with open(path, "rb", opener=open_itself) as file:
        found = os.fstat(file.fileno())
        own = stat.S_ISREG(found.st_mode) and found.st_uid == os.geteuid() and found.st_nlink == 1
        return file.read() if own and not found.st_mode & _OTHERS_WRITE else b""


def _find_folder() -> Path | None:
    """The folder of compiled code, made ours alone; nothing if it cannot be."""
    try:
        folder = cache_folder().absolute() / _FOLDER
        reason = _claim(folder)
    except (RuntimeError, OSError):  # no home, or nothing can be written there
        return None
    if reason:
        _warn(reason)
    return None if reason else folder


@cache
def _warn(reason: str) -> None:
    """Say it once."""
    warnings.warn(
        f"compiled code is not kept for the next run, because others could put theirs there: "
        f"{reason}; set XDG_CACHE_HOME to a folder that only you can write to",
        stacklevel=2,
    )


def _claim(folder: Path) -> str:
    """Make the folder ours alone; why it cannot be, or nothing.

    Raises:
        OSError: There can be no such folder.
    """
    reason = _find_stranger(folder.parent)
    if reason:
        return reason
    if not os.path.lexists(folder):
        folder.mkdir(0o700, exist_ok=True)
    found = folder.lstat()
    if found.st_uid != os.geteuid():
        return f"{folder} belongs to user {found.st_uid}"
    if stat.S_ISLNK(found.st_mode):
        return _claim(_follow(folder))
    if not stat.S_ISDIR(found.st_mode):
        raise NotADirectoryError(folder)
    if stat.S_IMODE(found.st_mode) != 0o700:
        with suppress(OSError):  # some file systems have no permissions
            folder.chmod(0o700)
    return f"others can write to {folder}" if folder.stat().st_mode & _OTHERS_WRITE else ""


def _find_stranger(path: Path) -> str:
    """Who else could replace the path or a folder on the way; empty if nobody could.

    From the top down, so that what was looked at stays what it was. Folders that are missing are
    made.
    """
    trusted = {os.geteuid(), 0, os.stat("/").st_uid}  # in a container, root may have another number
    for place in (*reversed(path.parents), path):
        if not os.path.lexists(place):
            place.mkdir(0o755, exist_ok=True)
        found = place.lstat()
        if found.st_uid not in trusted:
            return f"{place} belongs to user {found.st_uid}"
        if stat.S_ISLNK(found.st_mode):
            reason = _find_stranger(_follow(place))
            if reason:
                return reason
        elif _lets_others_rename(found):
            return f"others can write to {place}"
    return ""


def _follow(link: Path) -> Path:
    """Where a link leads."""
    link.stat()  # fails if that is in a ring
    return link.parent / link.readlink()


def _lets_others_rename(folder: os.stat_result) -> bool:
    """Whether others can rename what the folder holds; where it is sticky, only what is theirs."""
    others = folder.st_mode & _OTHERS_WRITE
    if others == stat.S_IWGRP and _is_own_group(folder.st_gid):
        return False
    return bool(others) and not folder.st_mode & stat.S_ISVTX


def _is_own_group(gid: int) -> bool:
    """Whether it is the user's private group, which many systems let write by default."""
    try:
        user, group = pwd.getpwuid(os.geteuid()), grp.getgrgid(gid)
    except KeyError:
        return False
    own = group.gr_gid == user.pw_gid and group.gr_name == user.pw_name
    return own and set(group.gr_mem) <= {user.pw_name}
