"""Commands that messages tell a user to type."""

import os
import shlex
import shutil
import sys
from pathlib import Path

from hardstep.tasks.files import is_address


def find_program() -> str:
    """How to call this program again from here: its name, or its path if it is not on PATH."""
    called = Path(sys.argv[0])
    found = shutil.which("hardstep")
    if called.name != "hardstep" or (found and Path(found).resolve() == called.resolve()):
        return "hardstep"
    return os.path.relpath(called)


def format_evaluate(checkpoint: Path, task: str) -> str:
    """How to score a checkpoint of that task; a task from a file has to be named."""
    named = ["--task", task] if is_address(task) else []
    return f"{find_program()} {shlex.join(['evaluate', str(checkpoint), *named])}"
