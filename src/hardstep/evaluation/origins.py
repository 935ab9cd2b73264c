"""Where a batch comes from: rows of a tensor that stays.

A worker that has the data needs only the numbers of the rows. A tensor that was written to since is
no longer these rows, and travels whole.
"""

import weakref
from typing import NamedTuple

from torch import Tensor

from hardstep._torch import version_of


class _Origin(NamedTuple):
    part: weakref.ref[Tensor]
    source: Tensor
    rows: Tensor
    version: int


_ORIGINS: dict[int, _Origin] = {}  # by identity: tensors are equal number by number


def note_origin(part: Tensor, source: Tensor, rows: Tensor) -> None:
    """Remember that a tensor is these rows of another, for as long as it lives."""
    key = id(part)
    watch = weakref.ref(part, lambda _: _ORIGINS.pop(key, None))
    _ORIGINS[key] = _Origin(watch, source, rows, version_of(part))


def find_origin(part: Tensor) -> tuple[Tensor, Tensor] | None:
    """The tensor and the rows of it that a tensor is, if that is known."""
    found = _ORIGINS.get(id(part))
    if found is None or found.part() is not part or version_of(part) != found.version:
        return None
    return found.source, found.rows
