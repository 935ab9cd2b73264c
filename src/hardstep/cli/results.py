"""The result of a run, in the run's folder: written once it is scored, read when it is resumed."""

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hardstep._checks import is_count, is_float, is_whole, show
from hardstep._files import write_text
from hardstep._seals import seal_json, take_checksum
from hardstep.errors import CheckpointError
from hardstep.tasks import Task
from hardstep.training import ACCURACY

RESULT = "result.json"
PARTS: dict[str, Callable[[Any], bool]] = {  # what is told of a run, beside its scores
    "task": lambda value: isinstance(value, str),
    "data": lambda value: isinstance(value, str),
    "seed": is_whole,
    "steps": is_count,
    "selected_step": is_count,
    "evaluations": is_count,
    "test_examples": is_count,
    "seconds": lambda value: is_float(value) and 0 < value < math.inf,
}


def write_result(folder: Path, result: dict[str, Any]) -> None:
    """Keep a result, with a checksum.

    Raises:
        DataError: It cannot be written.
    """
    write_text(folder / RESULT, seal_json(json.dumps(result, indent=2)) + "\n")


def read_result(task: Task, folder: Path) -> dict[str, Any]:
    """The result of a run that has nothing left to do.

    Raises:
        CheckpointError: It is damaged, or of a run of another kind.
    """
    path = folder / RESULT
    try:
        text = path.read_text(encoding="utf-8")
        result = json.loads(text)
        fault = take_checksum(text, result) or _find_fault(task, result)
    except OSError as error:
        fault = f"it cannot be read ({error.strerror})"
    except (ValueError, RecursionError):
        fault = "it is not a JSON object"
    if fault:
        raise CheckpointError(f"{path}: {fault}; delete it, and --resume scores the run again")
    assert isinstance(result, dict)
    if task.key("test") not in result:
        raise CheckpointError(
            f"{folder} holds a finished run that was not scored by {task.metric.name}, the metric "
            f"of {task.name} now; train again with another --out"
        )
    return result


def _find_fault(task: Task, result: Any) -> str:
    """Why something is not a result, in a few words; empty if it is one."""
    if not isinstance(result, dict):
        return f"a result is an object, this is {show(result)}"
    is_score = _is_share if task.metric == ACCURACY else is_float
    scores = {task.key(part): is_score for part in ("test", "valid") if task.key("test") in result}
    for name, is_one in {**PARTS, **scores}.items():
        if name not in result:
            return f"{name} is missing"
        if not is_one(result[name]):
            return f"{name} is {show(result[name])}"
    return ""


def _is_share(value: Any) -> bool:
    return is_float(value) and 0 <= value <= 1
