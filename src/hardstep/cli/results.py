"""Where a result came from: versions, machine, command."""

import os
import platform
import shutil
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

from hardstep import __version__


def provenance() -> dict[str, Any]:
    """What one needs to produce a number again, or to know why it differs."""
    return {
        "hardstep": __version__,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "machine": f"{_processor()}, {torch.get_num_threads()} threads",
        "command": " ".join(["hardstep", *sys.argv[1:]]),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def program() -> str:
    """How to call this program again from here: its name, or its path if it is not on PATH."""
    called = Path(sys.argv[0])
    found = shutil.which("hardstep")
    if called.name != "hardstep" or (found and Path(found).resolve() == called.resolve()):
        return "hardstep"
    return os.path.relpath(called)


def _processor() -> str:
    try:
        with open("/proc/cpuinfo") as file:
            names = [line.split(":", 1)[1].strip() for line in file if "model name" in line]
    except OSError:
        names = []
    return names[0] if names else platform.processor() or platform.machine()
