"""The task of a checkpoint, which is data: the code it names does not run unless the user agrees.

A task of ours is found by its name. A task from a file is Python code, which runs if the user
names the file, or is shown it and agrees.
"""

import os
import reprlib
import sys
from pathlib import Path

from hardstep import tasks
from hardstep.cli.hints import format_evaluate
from hardstep.cli.options import EvaluateOptions
from hardstep.cli.output import print
from hardstep.errors import CheckpointError
from hardstep.tasks import Task
from hardstep.tasks.files import is_address, path_of

MOST_CHARACTERS = 1000  # of a path that a user is asked about


def choose_task(options: EvaluateOptions, path: Path, name: str, data: str) -> Task:
    """The task to score a checkpoint on: the one the user names, or else its own.

    Args:
        options: What the user typed.
        path: The checkpoint.
        name: What it calls its task.
        data: What it calls its data.

    Raises:
        CheckpointError: The file of the task is missing, or the user did not agree to run it.
        ConfigError: There is no such task.
    """
    if options.task is not None:
        brought = tasks.DEFAULT_DATA if is_address(options.task) else data
        return tasks.find(options.task, brought)
    if not is_address(name):
        return tasks.find(name, data)
    file = _find_file(path, name)
    if not os.path.isfile(file):
        raise CheckpointError(
            f"{path} was trained on {name}, and there is no file {file}; say where it is now with "
            "--task FILE.py:name"
        )
    if options.json or not _agree(path, name, file):
        raise CheckpointError(
            f"{path} was trained on {name}, so scoring it runs the Python code in {file}; if you "
            f"trust that file, type: {format_evaluate(path, name)}"
        )
    return tasks.find(name, data)


def _find_file(path: Path, name: str) -> str:
    """The file that would run, wherever links lead, if it can be shown as it is."""
    file = os.path.realpath(path_of(name)) if name.isprintable() else ""
    if not file.isprintable() or not 0 < len(file) <= MOST_CHARACTERS:
        raise CheckpointError(
            f"{path} names a task that cannot be shown, {reprlib.repr(file or name)}; name the one "
            "it was trained on with --task FILE.py:name"
        )
    return file


def _agree(path: Path, name: str, file: str) -> bool:
    """Ask, if there is somebody to ask; only yes is yes."""
    if not all(stream is not None and stream.isatty() for stream in (sys.stdin, sys.stderr)):
        return False
    print(
        f"{path} was trained on {name}. Scoring it runs the Python code in\n  {file}\n"
        "Run it? [y/N] ",
        end="",
        file=sys.stderr,
        flush=True,
    )
    return sys.stdin.readline().strip().lower() in ("y", "yes")
