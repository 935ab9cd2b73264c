"""The most memory a run had resident."""

import resource
import sys
from contextlib import suppress
from pathlib import Path


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
