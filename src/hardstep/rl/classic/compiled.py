"""Numba's compiler with the options that let LLVM compute several lanes at once.

Divisions raise nothing, as in NumPy. Operations are
neither fused nor reordered: every lane has the bits of a plain loop.
"""

import hashlib
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar, cast

import numba

from hardstep._compiled import Kept

Function = TypeVar("Function", bound=Callable[..., Any])
LANES = 16  # episodes that run side by side; two vectors of eight numbers


def jit(function: Function) -> Function:
    """Compile a function that may call functions of all files here; kept on disk."""
    compiler = numba.njit(nogil=True, error_model="numpy", forceinline=True)
    dispatcher: Any = compiler(function)
    with suppress(OSError):  # an application that ships no source keeps nothing
        dispatcher._cache = KeptTogether(function)
    return cast(Function, dispatcher)


class KeptTogether(Kept):
    """Kept as long as no file of this folder has changed."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__(function)
        files = sorted(Path(__file__).parent.glob("*.py"))
        source = b"".join(file.read_bytes() for file in files)
        self._stamp += hashlib.sha256(source).hexdigest()
