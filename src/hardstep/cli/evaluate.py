"""`hardstep evaluate`: the selected weights of a checkpoint, scored again."""

import json
from collections.abc import Mapping
from pathlib import Path
from textwrap import shorten
from typing import Any

from torch import Tensor, nn

from hardstep import nn as hard
from hardstep import tasks
from hardstep.cli.options import EvaluateOptions
from hardstep.cli.output import print
from hardstep.errors import CheckpointError
from hardstep.tasks import Task
from hardstep.tasks.dry_run import try_model
from hardstep.training import checkpoints

CHECKPOINT = "checkpoint.pt"  # in the folder of a run
MOST_CHARACTERS = 300  # of torch's list of what does not fit


def run_evaluate(options: EvaluateOptions) -> int:
    """Score validation and test; returns the exit code."""
    path = options.checkpoint
    path = path / CHECKPOINT if path.is_dir() else path
    saved = read_checkpoint(path)
    meta = saved.get("meta", {})
    missing = [name for name in ("task", "data", "seed") if name not in meta]
    if missing:
        raise CheckpointError(
            f"{path} was not written by `hardstep train`: it does not say its {missing[0]}"
        )
    task = tasks.find(meta["task"], meta["data"])
    dataset = task.data(meta["seed"])
    model = hard.build(task.model, meta["seed"])
    restore(model, saved["best_weights"] or saved["model"], path, task)
    try_model(task, dataset, model)
    test = dataset.open_test()
    step = int(saved["best"][0]) if saved["best"] else int(saved["optimizer"]["step"])
    valid_score, test_score = task.score(model, dataset.valid), task.score(model, test)
    if options.json:
        scores = {task.key("valid"): valid_score, task.key("test"): test_score}
        print(json.dumps({**meta, "step": step, **scores, "test_examples": len(test)}))
    else:
        names = (f"test {task.metric.name}", "validation")
        width = max(map(len, names))
        print(f"{names[0]:<{width}} {task.metric.format(test_score)}  ({len(test):,} examples)")
        print(f"{names[1]:<{width}} {task.metric.format(valid_score)}  (weights of step {step})")
    return 0


def read_checkpoint(path: Path) -> dict[str, Any]:
    """What a checkpoint holds.

    Raises:
        CheckpointError: It is missing, damaged, or something else.
    """
    try:
        return checkpoints.load(path)
    except Exception as error:  # to read a file of another kind as a pickle may raise anything
        if isinstance(error, CheckpointError) and error.__cause__ is None:
            raise
        raise CheckpointError(
            f"{path} ({path.stat().st_size:,} bytes) cannot be read as a checkpoint: it was cut "
            "off, or is another kind of file; name the checkpoint.pt of a run"
        ) from error


def restore(model: nn.Module, weights: Mapping[str, Tensor], path: Path, task: Task) -> None:
    """Give a task's model the weights of a checkpoint.

    Raises:
        CheckpointError: They are those of another model.
    """
    try:
        model.load_state_dict(weights)
    except RuntimeError as error:
        reason = shorten(str(error), MOST_CHARACTERS, placeholder=" …")
        raise CheckpointError(
            f"{path} does not fit the model of {task.name}, which is another or was changed: "
            f"{reason}"
        ) from error
