"""Files that are ours: where they are kept, how they are written, where a result came from."""

import fcntl
import os
import platform
import re
import secrets
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from functools import cache
from itertools import count
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

import hardstep
from hardstep.errors import DataError

_TOKEN_BYTES = 8  # in the names of temporary files


def cache_folder() -> Path:
    """Where downloaded data sets and compiled kernels are kept.

    Raises:
        DataError: The user has no home folder, and `XDG_CACHE_HOME` is not set.
    """
    try:
        base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    except RuntimeError as error:
        raise DataError("there is no home folder to keep files in; set XDG_CACHE_HOME") from error
    return Path(base) / "hardstep"


@contextmanager
def write_atomically(path: Path) -> Iterator[Path]:
    """A temporary file that takes `path`'s place when the block ends well.

    What a process that was killed meanwhile has left of `path` is removed.

    Raises:
        DataError: In that place is a device or a pipe, which the superuser would replace.
    """
    _check_replaceable(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    _remove_leftovers(path)
    temporary, lock = _create_beside(path)
    try:
        yield temporary
        os.fsync(lock)
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    finally:
        os.close(lock)


def _create_beside(path: Path) -> tuple[Path, int]:
    """A new file, and the descriptor that keeps it locked as long as its writer lives."""
    while True:
        temporary = _name_temporary(path)
        # Readable as files usually are; those of tempfile are private.
        lock = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o666)
        _lock(lock)
        if os.fstat(lock).st_nlink:
            return temporary, lock
        os.close(lock)  # taken for a leftover before it was locked


def _remove_leftovers(path: Path) -> None:
    """Remove temporary files of `path` that no process is writing any more."""
    pattern = re.compile(rf"\.{re.escape(path.name)}\.[0-9a-f]{{{2 * _TOKEN_BYTES}}}")
    with os.scandir(path.parent) as entries:
        found = [entry.path for entry in entries if pattern.fullmatch(entry.name)]
    for leftover in found:
        with suppress(OSError):  # another user's, or removed by another process
            lock = os.open(leftover, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK)
            try:
                if _lock(lock):
                    os.unlink(leftover)
            finally:
                os.close(lock)


def _lock(descriptor: int) -> bool:
    """Whether the file is this process's alone now; never where the file system has no locks."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


@contextmanager
def explain_failed_write(
    path: Path, hint: str = "make room there, or name another place"
) -> Iterator[None]:
    """Turn a full disk and the like into one sentence.

    Raises:
        DataError: The system refused to write.
    """
    try:
        yield
    except OSError as error:
        raise DataError(f"{path} cannot be written: {error.strerror or error}; {hint}") from error


def write_text(path: Path, text: str) -> None:
    """Write a file, whole or not at all.

    Raises:
        DataError: The system refused to write.
    """
    with explain_failed_write(path), write_atomically(path) as temporary:
        temporary.write_text(text, encoding="utf-8", errors="backslashreplace")


def _name_temporary(path: Path) -> Path:
    return path.parent / f".{path.name}.{secrets.token_hex(_TOKEN_BYTES)}"


def free_beside(path: Path) -> Path:
    """The first of name.1.suffix, name.2.suffix, … that does not exist."""
    names = (path.with_name(f"{path.stem}.{number}{path.suffix}") for number in count(1))
    return next(name for name in names if not name.exists())


def check_writable(path: Path, option: str) -> None:
    """Refuse a path at which no file can be written; folders that are missing will be made.

    Raises:
        DataError: It is a folder, or lies where nothing can be written.
    """
    if os.path.isdir(path):
        raise DataError(f"{path} is a folder; name a file in it with {option}")
    _check_replaceable(path, f"; name a file with {option}")
    _check_place(path, option)


def _check_replaceable(path: Path, way_out: str = "") -> None:
    is_special = os.path.exists(path) and not (os.path.isfile(path) or os.path.isdir(path))
    if is_special or os.path.realpath(path.parent) == "/dev":  # /dev/stdout may lead to a file
        raise DataError(f"{path} is no file but a device or a pipe{way_out}")


def check_folder(path: Path, option: str) -> None:
    """Refuse a path at which there can be no folder with files in it; it is not made yet.

    Raises:
        DataError: It is a file, or lies where nothing can be written.
    """
    if os.path.lexists(path) and not os.path.isdir(path):
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
            _name_temporary(path).exists()  # a name may be too long, or too long to write first
        except OSError as error:
            raise DataError(
                f"{path} cannot be written: {there} takes no files ({error.strerror}); name "
                f"another with {option}"
            ) from error


def provenance() -> dict[str, Any]:
    """What one needs to produce a number again, or to know why it differs."""
    import torch  # not before it is needed: `hardstep --help` does not wait for it

    return {
        "hardstep": hardstep.__version__,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "machine": f"{_processor()}, {torch.get_num_threads()} threads",
        "commit": commit(),
        "command": describe_command(),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def describe_command() -> str:
    """What this process was started with: `hardstep train snn`, `python -m tests.x`, `python x.py`.

    A program that calls hardstep's commands under a name of its own is taken for hardstep.
    """
    called, spec = Path(sys.argv[0]), getattr(sys.modules["__main__"], "__spec__", None)
    module = "" if spec is None else str(spec.name).removesuffix(".__main__")
    name = "hardstep"
    if called.suffix == ".py" and module not in ("", "hardstep"):
        name = f"python -m {module}"
    elif called.suffix == ".py" and not module:
        name = f"python {called.name}"
    return " ".join([name, *map(_shorten_path, sys.argv[1:])])


def _shorten_path(word: str) -> str:
    """Without the folders of an absolute path: they are this machine's, not the run's."""
    option, sign, value = word.rpartition("=")
    path = Path(value)
    if not path.is_absolute():
        return word
    inside = path.is_relative_to(Path.cwd())
    return f"{option}{sign}{path.relative_to(Path.cwd()) if inside else path.name}"


@cache
def commit() -> str:
    """The commit this code is from, with a plus if its source was changed since; or nothing.

    Kept for the life of the process: later commits do not change what it has loaded.
    """
    source = Path(hardstep.__file__).parent
    try:
        head = _git(source, "rev-parse", "--short=12", "HEAD")
        tracked = _git(source, "ls-files", "__init__.py")
        changed = _git(source, "status", "--porcelain", ".")
    except (OSError, subprocess.SubprocessError):  # an installed package, or no git
        return ""
    if not tracked:  # installed below somebody else's repository
        return ""
    return f"{head}+" if changed else head


def _git(folder: Path, *arguments: str) -> str:
    done = subprocess.run(
        ["git", "-C", os.fspath(folder), *arguments],
        capture_output=True,
        text=True,
        check=True,
        timeout=10,
    )
    return done.stdout.strip()


def _processor() -> str:
    """Its name and its kind: clouds give one name to processors of very different speeds."""
    import llvmlite.binding as llvm

    return f"{_processor_name()} ({llvm.get_host_cpu_name()})"


def _processor_name() -> str:
    try:
        with open("/proc/cpuinfo") as file:
            names = [line.split(":", 1)[1].strip() for line in file if "model name" in line]
    except OSError:
        names = []
    return names[0] if names else platform.processor() or platform.machine()
