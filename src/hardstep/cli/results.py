"""Where a result came from: versions, machine, command."""

import platform
import sys
from datetime import UTC, datetime
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


def _processor() -> str:
    try:
        with open("/proc/cpuinfo") as file:
            names = [line.split(":", 1)[1].strip() for line in file if "model name" in line]
    except OSError:
        names = []
    return names[0] if names else platform.processor() or platform.machine()
