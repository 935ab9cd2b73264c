"""Target: entries of the cache of compiled kernels, which are native code."""

import ctypes
import os
from pathlib import Path
from random import Random

from hardstep.evaluation.fused.compile import compile_kernel
from tests.fuzz.answers import ACCEPTED, Fault
from tests.fuzz.damage import damage_binary
from tests.fuzz.target import Case, Target

RIGHT = 42
TEXT = """
define void @run(ptr %t, i64 %a, i64 %b, i64 %c, i64 %d, ptr %out) {{
  store i64 {value}, ptr %out
  ret void
}}
"""


class Kernel(Target):
    """An entry: used if it is whole, otherwise compiled again; never run when it is damaged."""

    name = "kernel"

    def prepare(self) -> None:
        """Compile two kernels, each in a folder of its own."""
        for value in (RIGHT, 13):
            os.environ["XDG_CACHE_HOME"] = str(Path(f"cache-{value}").resolve())
            _run(value)

    def open(self) -> None:
        """The entry, and one of another kernel."""
        os.environ["XDG_CACHE_HOME"] = str(Path(f"cache-{RIGHT}").resolve())
        (self.file,) = (p for p in Path(f"cache-{RIGHT}").rglob("*") if p.is_file())
        (other,) = (p for p in Path("cache-13").rglob("*") if p.is_file())
        self.content, self.other = self.file.read_bytes(), other.read_bytes()

    def vary(self, rng: Random) -> Case:
        """Damaged, or with parts of another kernel's."""
        return Case(damage_binary(self.content, rng, [self.other]), exact=True)

    def read(self, case: Case) -> str:
        """Compile and run as a new process would."""
        self.file.write_bytes(case.content)
        if _run(RIGHT) != RIGHT:
            raise Fault("a damaged entry ran", "evaluation/fused/compile.py")
        if self.file.read_bytes() != self.content:
            raise Fault("a damaged entry stays", "evaluation/fused/compile.py")
        return ACCEPTED


def _run(value: int) -> int:
    compile_kernel.cache_clear()
    found = ctypes.c_int64(0)
    compile_kernel(TEXT.format(value=value))(None, 0, 0, 0, 0, ctypes.addressof(found))
    return found.value
