"""Checkpoints that are either the old one or the new one, never half of each."""

import os
import pickle
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from hardstep._files import replacing
from hardstep.errors import CheckpointError

FORMAT = "hardstep-run-1"


@dataclass(frozen=True)
class Checkpoint:
    """Where and how often a run is saved.

    Args:
        path: The file.
        every_seconds: Saved at the first step end after this long, at the end and when
            interrupted.
        meta: Anything of numbers, strings, lists and dicts to keep with it.
        at_validations: Also then.
    """

    path: Path | str
    every_seconds: float = 10.0
    meta: Mapping[str, Any] = field(default_factory=dict)
    at_validations: bool = True


def check_place(path: Path | str, resume: bool) -> None:
    """Look at a checkpoint's place before the first step, not when the first save fails.

    Raises:
        CheckpointError: A new run would replace a saved one, or nothing can be written there.
    """
    file = Path(path)
    if file.is_dir():
        raise CheckpointError(f"checkpoint {path} is a folder; name a file in it")
    if file.exists() and not resume:
        raise CheckpointError(
            f"checkpoint {path} holds a run already; go on with it with resume=True, name another "
            "path, or delete it"
        )
    there = next(p for p in file.absolute().parents if p.exists())
    if not there.is_dir() or not os.access(there, os.W_OK):
        kind = "cannot be written to" if there.is_dir() else "is no folder"
        raise CheckpointError(f"checkpoint {path} cannot be saved: {there} {kind}; name another")


def save(path: Path | str, content: Mapping[str, Any]) -> None:
    """Write a checkpoint that `torch.load(weights_only=True)` reads."""
    with replacing(Path(path)) as temporary:
        torch.save({"format": FORMAT, **content}, temporary)


def load(path: Path | str) -> dict[str, Any]:
    """Read a checkpoint.

    Raises:
        CheckpointError: It is missing, damaged, or not one of ours.
    """
    if not Path(path).is_file():
        raise CheckpointError(f"no checkpoint at {path}")
    try:
        with warnings.catch_warnings():  # of a pickle that is not ours; it is refused below
            warnings.filterwarnings("ignore", message="Detected pickle protocol")
            content = torch.load(path, map_location="cpu", weights_only=True)
    except (RuntimeError, EOFError, ValueError, KeyError, OSError, pickle.UnpicklingError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise CheckpointError(f"cannot read checkpoint {path}: {reason}") from error
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise CheckpointError(f"{path} is not a checkpoint of hardstep's training loop ({FORMAT})")
    return content
