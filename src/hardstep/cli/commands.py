"""Commands that messages tell a user to type."""

import os
import shutil
import sys
from pathlib import Path


def find_program() -> str:
    """How to call this program again from here: its name, or its path if it is not on PATH."""
    called = Path(sys.argv[0])
    found = shutil.which("hardstep")
    if called.name != "hardstep" or (found and Path(found).resolve() == called.resolve()):
        return "hardstep"
    return os.path.relpath(called)
