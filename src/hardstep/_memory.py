"""How much memory is free, and the refusal of what needs more, before any of it is taken."""

import os
from contextlib import suppress
from pathlib import Path

from hardstep.errors import CapacityError

_GROUP = Path("/sys/fs/cgroup")  # of a container or a batch job


def check_memory(what: str, needed: int, way_out: str, reserved: int = 0) -> None:
    """Refuse to begin what needs more memory than there is.

    Args:
        what: Begins the sentence, for instance "Search: 3 variables".
        needed: Bytes, about.
        way_out: Ends the sentence.
        reserved: Bytes that are asked for and hardly written to: a limit of the process counts
            them, the machine does not.

    Raises:
        CapacityError: It would not fit.
    """
    free, allowed = free_bytes(), max(0, _free_by_limit())
    if needed + reserved > allowed:
        needed, free = needed + reserved, allowed
    if needed > free:
        raise CapacityError(
            f"{what} need about {format_bytes(needed)} of memory, and {format_bytes(free)} are "
            f"free; {way_out}"
        )


def free_bytes() -> int:
    """What this process can still take: of the machine, its container and its own limit."""
    return max(0, min(_free_here(), _free_in_group(), _free_by_limit()))


def _free_here() -> int:
    with suppress(OSError, ValueError, IndexError):
        lines = Path("/proc/meminfo").read_text().splitlines()
        (found,) = [line for line in lines if line.startswith("MemAvailable:")]
        return 1024 * int(found.split()[1])
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _free_in_group() -> int:
    with suppress(OSError, ValueError):
        limit = int((_GROUP / "memory.max").read_text())  # the word "max" if there is none
        used = int((_GROUP / "memory.current").read_text())
        kept = dict(line.split() for line in (_GROUP / "memory.stat").read_text().splitlines())
        return limit - used + int(kept.get("inactive_file", 0))  # what was read is let go
    return 1 << 62


def _free_by_limit() -> int:
    with suppress(ImportError, OSError, ValueError, IndexError):
        import resource

        limit = resource.getrlimit(resource.RLIMIT_AS)[0]
        if limit != resource.RLIM_INFINITY:
            pages = int(Path("/proc/self/statm").read_text().split()[0])
            return limit - pages * os.sysconf("SC_PAGE_SIZE")
    return 1 << 62


def format_bytes(num_bytes: int) -> str:
    """Bytes in the unit that suits them: 640 bytes, 12.50 MB, 3.00 GB."""
    for factor, unit in ((10**9, "GB"), (10**6, "MB")):
        if num_bytes >= factor:
            return f"{num_bytes / factor:,.2f} {unit}"
    return f"{num_bytes:,} bytes"
