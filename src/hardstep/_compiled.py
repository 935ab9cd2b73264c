"""Numba's compiler, with what it made kept where our other kernels are.

Numba's own cache unpickles what it finds in the first folder that can be written to: the one that
NUMBA_CACHE_DIR names, `__pycache__`, or one of the user's. It does not ask who wrote it, and stops
at a file that was cut off.
"""

import hashlib
import pickle
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar, cast

import llvmlite
import numba
from numba.core.caching import NullCache
from numba.core.compiler import CompileResult
from numba.core.serialize import dumps

from hardstep._cache import keep_code, read_code

Function = TypeVar("Function", bound=Callable[..., Any])
_RESULT: Any = CompileResult  # numba says little about types
_DUMPS: Any = dumps


def jit(function: Function) -> Function:
    """Numba's compiler, kept on disk; several threads in Python may run the result at once."""
    dispatcher: Any = numba.njit(nogil=True)(function)
    with suppress(OSError):  # an application that ships no source keeps nothing
        dispatcher._cache = Kept(function)
    return cast(Function, dispatcher)


class Kept(NullCache):
    """What numba asks before it compiles a function, and tells when it has."""

    def __init__(self, function: Callable[..., Any]) -> None:
        versions = (numba.__version__, llvmlite.__version__, sys.implementation.cache_tag)
        # What a kernel calls is in its file, too. Read now: later, the file may be another.
        files = (function.__code__.co_filename, __file__)
        source = b"".join(Path(file).read_bytes() for file in files)
        self._stamp = f"{versions} {function.__qualname__} {hashlib.sha256(source).hexdigest()}"

    def _describe(self, signature: object, host: Any) -> str:
        return f"{self._stamp} {signature} {host.magic_tuple()}"

    def load_overload(self, sig: object, target_context: Any) -> Any:
        """The function for arguments of these types; nothing if it has to be compiled."""
        target_context.refresh()
        kept = read_code(self._describe(sig, target_context.codegen()))
        return None if kept is None else _RESULT._rebuild(target_context, *pickle.loads(kept))

    def save_overload(self, sig: object, result: Any) -> None:
        """Keep it for the next process."""
        if not result.library.has_dynamic_globals:  # addresses, which are of this process
            keep_code(self._describe(sig, result.codegen), _DUMPS(result._reduce()))
