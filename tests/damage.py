"""Damaged copies of files, and disks that are full."""

import resource
from contextlib import contextmanager


def flip_bytes(content, every=1):
    """Copies with one byte changed, each position in turn: by a bit, by its case, to anything."""
    for place in range(0, len(content), every):
        for mask in (1 << place % 8, 0x20, 0x7F):
            yield content[:place] + bytes([content[place] ^ mask]) + content[place + 1 :]


def cut_off(content, every=1):
    """All beginnings of a file but the whole of it."""
    return (content[:length] for length in range(0, len(content), every))


@contextmanager
def full_disk(free=100):
    """No file can grow beyond so many bytes."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (free, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
