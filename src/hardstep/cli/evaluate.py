"""`hardstep evaluate`: the selected weights of a checkpoint, scored again."""

import json
from pathlib import Path

from hardstep import nn as hard
from hardstep import tasks
from hardstep.errors import CheckpointError
from hardstep.training import checkpoints


def run_evaluate(path: Path, as_json: bool) -> int:
    """Score validation and test; returns the exit code."""
    saved = checkpoints.load(path)
    meta = saved.get("meta", {})
    missing = [name for name in ("task", "data", "seed") if name not in meta]
    if missing:
        raise CheckpointError(
            f"{path} was not written by `hardstep train`: it does not say its {missing[0]}"
        )
    task = tasks.find(meta["task"], meta["data"])
    dataset = task.data(meta["seed"])
    model = hard.build(task.model, meta["seed"])
    model.load_state_dict(saved["best_weights"] or saved["model"])
    test = dataset.open_test()
    result = {
        **meta,
        "step": int(saved["best"][0]) if saved["best"] else int(saved["optimizer"]["step"]),
        "valid_accuracy": task.score(model, dataset.valid),
        "test_accuracy": task.score(model, test),
        "test_examples": len(test),
    }
    if as_json:
        print(json.dumps(result))
    else:
        print(f"test accuracy {100 * result['test_accuracy']:.1f} %  ({len(test):,} images)")
        print(
            f"validation    {100 * result['valid_accuracy']:.1f} %  (weights of {result['step']})"
        )
    return 0
