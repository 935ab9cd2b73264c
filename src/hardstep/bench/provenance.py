"""Where a result came from: versions, machine, commit, command; and the memory it took."""

import os
import platform
import resource
import subprocess
import sys
from contextlib import suppress
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

import llvmlite.binding as llvm
import torch

import hardstep


def provenance() -> dict[str, Any]:
    """What one needs to produce a number again, or to know why it differs."""
    return {
        "hardstep": hardstep.__version__,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "machine": f"{_processor()}, {torch.get_num_threads()} threads",
        "commit": commit(),
        "command": " ".join(["hardstep", *sys.argv[1:]]),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
    }


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
    return f"{_processor_name()} ({llvm.get_host_cpu_name()})"


def _processor_name() -> str:
    try:
        with open("/proc/cpuinfo") as file:
            names = [line.split(":", 1)[1].strip() for line in file if "model name" in line]
    except OSError:
        names = []
    return names[0] if names else platform.processor() or platform.machine()


def forget_peak_memory() -> None:
    """Begin a new measurement of `peak_memory`, where the system can (Linux)."""
    with suppress(OSError):  # then the peak is that of the process's whole life
        Path("/proc/self/clear_refs").write_text("5")


def peak_memory() -> int:
    """Bytes this process had resident at most since `forget_peak_memory`."""
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
    except OSError:
        lines = []
    for line in lines:
        if line.startswith("VmHWM:"):
            return 1024 * int(line.split()[1])
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else 1024 * peak
