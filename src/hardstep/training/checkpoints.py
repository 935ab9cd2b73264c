"""Checkpoints that are either the old one or the new one, never half of each.

Also: whether a saved run is the one that is to be resumed.
"""

import io
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import torch
from torch import Tensor, nn

from hardstep._checks import is_same, show
from hardstep._files import write_atomically
from hardstep._seals import is_archive, seal_archive, verify_archive
from hardstep.errors import CheckpointError, DataError
from hardstep.training.contents import find_fault

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
            f"checkpoint {path} holds a run already; resume it with resume=True, name another "
            "path, or delete it"
        )
    there = next(p for p in file.absolute().parents if p.exists())
    if not there.is_dir() or not os.access(there, os.W_OK):
        kind = "cannot be written to" if there.is_dir() else "is no folder"
        raise CheckpointError(f"checkpoint {path} cannot be saved: {there} {kind}; name another")


def save(path: Path | str, content: Mapping[str, Any]) -> None:
    """Write a checkpoint with a checksum; `torch.load(weights_only=True)` reads it, too.

    Raises:
        CheckpointError: The system refused to write; the checkpoint from before is still there.
    """
    stream = io.BytesIO()  # torch's own writer does not survive a full disk
    torch.save({"format": FORMAT, **content}, stream)
    seal_archive(stream)
    try:
        with write_atomically(Path(path)) as temporary:
            temporary.write_bytes(stream.getbuffer())
    except OSError as error:
        kept = " and resume from the one saved before" if Path(path).exists() else ""
        raise CheckpointError(
            f"checkpoint {path} cannot be saved: {error.strerror or error}; make room there{kept}, "
            "or name another path"
        ) from error


def load(path: Path | str) -> dict[str, Any]:
    """Read a checkpoint.

    Raises:
        CheckpointError: It is missing, damaged, not one of ours, or lacks something.
    """
    if not Path(path).is_file():
        raise CheckpointError(f"no checkpoint at {path}")
    try:
        with open(path, "rb") as stream:
            content = _read(path, stream)
    except OSError as error:
        raise CheckpointError(
            f"checkpoint {path} cannot be read: {error.strerror or error}"
        ) from error
    if not isinstance(content, dict) or not is_same(content.get("format"), FORMAT):
        raise CheckpointError(f"{path} is not a checkpoint of hardstep's training loop ({FORMAT})")
    fault = find_fault(content)
    if fault:
        raise CheckpointError(
            f"checkpoint {path} does not hold a run: {fault}; name another, or start a new run"
        )
    return content


def _read(path: Path | str, stream: IO[bytes]) -> Any:
    """What an archive of torch's holds, after a look at its checksums, which torch ignores."""
    other_kind = CheckpointError(
        f"{path} ({os.fstat(stream.fileno()).st_size:,} bytes) cannot be read as a checkpoint: it "
        "was cut off, or is another kind of file; name the checkpoint.pt of a run"
    )
    if not is_archive(stream):
        raise other_kind
    try:
        verified = verify_archive(stream)
    except DataError as error:
        raise CheckpointError(
            f"checkpoint {path} is damaged: {error}; restore it from a copy, or start a new run"
        ) from error
    try:
        return torch.load(verified, map_location="cpu", weights_only=True)
    except Exception as error:  # an archive of another kind may raise anything
        raise other_kind from error


def check_weights(model: nn.Module, saved: Mapping[str, Tensor]) -> None:
    """Refuse the weights of another model, before anything is changed."""
    shapes = {name: _describe(tensor) for name, tensor in saved.items()}
    own = {name: _describe(tensor) for name, tensor in model.state_dict().items()}
    odd = [name for name in own | shapes if own.get(name) != shapes.get(name)]
    if odd:
        now, before = (part.get(odd[0], "absent") for part in (own, shapes))
        raise CheckpointError(
            f"fit: the checkpoint is of another model: {odd[0]} was {before} and is {now}; build "
            "the model it was saved with"
        )


def _describe(tensor: Tensor) -> str:
    return f"{tuple(tensor.shape)}{', complex' if tensor.is_complex() else ''}"


def check_stream(now: Mapping[str, Any], saved: Mapping[str, Any]) -> None:
    """Refuse other batches, as far as they can be told apart."""
    for name, value in now.items():
        if not is_same(saved.get(name, value), value):
            raise CheckpointError(
                f"fit: train has {name} {value}, that of the saved run had {show(saved[name])}; "
                "resume with the same batches, or start a new run with another checkpoint"
            )


def name_way_out(error: CheckpointError, now: int, saved: int) -> CheckpointError:
    """The optimizer's refusal; schedules made for another number of steps are a common reason."""
    if now == saved or not saved:
        return error
    return CheckpointError(
        f"{error}; the saved run was to take {saved} steps and this one {now}, so schedules made "
        f"for the whole run differ: resume with its limits, or train on from its weights, "
        f"checkpoints.load(path)['model'], as a new run with another checkpoint"
    )
