"""What a checkpoint must hold: its parts by name, and what each of them is."""

import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from hardstep._checks import is_count, is_float, show
from hardstep.optim.state import is_dense


def _is_time(value: Any) -> bool:
    return is_float(value) and 0 <= value < math.inf


def _is_named(value: Any) -> bool:
    return isinstance(value, dict) and all(isinstance(name, str) for name in value)


def _is_weights(value: Any) -> bool:
    return _is_named(value) and all(map(is_dense, value.values()))


def _is_score(value: Any) -> bool:
    """Step, value (NaN if it was), evaluations, seconds; later CPU seconds and interactions."""
    if not isinstance(value, list) or len(value) not in (4, 5, 6):
        return False
    if len(value) == 6 and not is_count(value[5]):
        return False
    step, score, evaluations, *times = value[:5]
    counts = is_count(step) and is_count(evaluations)
    return counts and is_float(score) and all(map(_is_time, times))


class Part(NamedTuple):
    """What one entry has to be, in code and in words."""

    is_one: Callable[[Any], bool]
    words: str
    is_needed: bool = True  # older checkpoints lack some


_COUNT = "a whole number >= 0"
PARTS = {
    "model": Part(_is_weights, "tensors by name"),
    "optimizer": Part(lambda value: isinstance(value, dict), "a dict"),
    "best_weights": Part(_is_weights, "tensors by name"),
    "best": Part(lambda value: value is None or _is_score(value), "a validation or None"),
    "history": Part(
        lambda value: isinstance(value, list) and all(map(_is_score, value)),
        "a list of validations [step, value, evaluations, seconds, CPU seconds, interactions]",
    ),
    "epoch": Part(is_count, _COUNT),
    "batch": Part(is_count, _COUNT),
    "seconds": Part(_is_time, "a finite number >= 0"),
    "cpu_seconds": Part(_is_time, "a finite number >= 0", is_needed=False),
    "total_steps": Part(is_count, _COUNT, is_needed=False),
    "sighted": Part(lambda value: isinstance(value, bool), "true or false", is_needed=False),
    "blind_steps": Part(is_count, _COUNT, is_needed=False),
    "interactions": Part(is_count, _COUNT, is_needed=False),
    "steps_at_goal": Part(is_count, _COUNT, is_needed=False),
    "stream": Part(_is_named, "a dict with names", is_needed=False),
    "meta": Part(_is_named, "a dict with names", is_needed=False),
}


def find_fault(content: Mapping[str, Any]) -> str:
    """Why something is not the content of a checkpoint, in a few words; empty if it is."""
    for name, part in PARTS.items():
        if name not in content:
            if part.is_needed:
                return f"it has no {name!r}"
        elif not part.is_one(content[name]):
            return f"its {name!r} must be {part.words}, got {show(content[name])}"
    if (content["best"] is None) != (not content["best_weights"]):
        given, lacking = ("best", "best_weights") if content["best"] else ("best_weights", "best")
        return f"it has {given!r}, but nothing in {lacking!r}"
    return ""
