"""`hardstep evaluate`: the selected weights of a checkpoint, scored again."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from textwrap import shorten
from typing import Any

from torch import Tensor, nn

from hardstep import nn as hard
from hardstep._checks import is_count, is_whole, show
from hardstep.cli.consent import choose_task
from hardstep.cli.options import EvaluateOptions
from hardstep.cli.output import print
from hardstep.errors import CheckpointError
from hardstep.rl.agent import Agent
from hardstep.tasks import Task
from hardstep.tasks.dry_run import try_model
from hardstep.tasks.task import key_of
from hardstep.training import checkpoints

CHECKPOINT = "checkpoint.pt"  # in the folder of a run
MOST_CHARACTERS = 300  # of torch's list of what does not fit
META: dict[str, Callable[[object], bool]] = {
    "task": lambda value: isinstance(value, str),
    "data": lambda value: isinstance(value, str),
    "seed": is_whole,
    "steps": is_count,
    "step": is_count,  # the optimizer says it
}


def find_checkpoint(path: Path) -> Path:
    """A checkpoint, or the one in the folder of a run."""
    return path / CHECKPOINT if path.is_dir() else path


def run_evaluate(options: EvaluateOptions) -> int:
    """Score validation and test; returns the exit code."""
    path = find_checkpoint(options.checkpoint)
    saved = checkpoints.load(path)
    meta = read_meta(saved, path)
    task = choose_task(options, path, meta["task"], meta["data"])
    dataset = task.data(meta["seed"])
    model = hard.build(task.model, meta["seed"])
    restore(model, saved["best_weights"] or saved["model"], path, task)
    try_model(task, dataset, model)
    test = dataset.open_test()
    step = saved["best"][0] if saved["best"] else saved["optimizer"]["step"]
    if isinstance(model, Agent):
        return _play(options, model, test.inputs, {**meta, "step": step})
    valid_score, test_score = task.score(model, dataset.valid), task.score(model, test)
    also = task.score_also(model, test, "test")
    if options.json:
        scores = also | {task.key("valid"): valid_score, task.key("test"): test_score}
        named = {**meta, "task": task.name, "data": task.data_name}
        print(json.dumps({**named, "step": step, **scores, "test_examples": len(test)}))
    else:
        names = (f"test {task.metric.name}", "validation")
        width = max(map(len, names))
        print(f"{names[0]:<{width}} {task.metric.format(test_score)}  ({len(test):,} examples)")
        for metric in task.also:
            score = metric.format(also[key_of(metric, "test")])
            print(f"{f'test {metric.name}':<{width}} {score}")
        print(f"{names[1]:<{width}} {task.metric.format(valid_score)}  (weights of step {step})")
    return 0


def _play(options: EvaluateOptions, agent: Agent, seeds: Tensor, meta: dict[str, Any]) -> int:
    """Episodes whose seeds no training used: their mean return, spread and seeds."""
    returns = agent(seeds)
    mean, spread = float(returns.mean()), float(returns.std())
    first, last = int(seeds[0]), int(seeds[-1])
    if options.json:
        numbers = {"return": mean, "spread": spread, "episodes": len(seeds)}
        print(json.dumps({**meta, **numbers, "first_seed": first, "last_seed": last}))
        return 0
    print(f"return   {mean:.4g}  (mean of {len(seeds)} episodes, policy of step {meta['step']})")
    print(f"spread   {spread:.4g}  (from {float(returns.min()):.4g} to {float(returns.max()):.4g})")
    print(f"seeds    {first:,} to {last:,}, which no training uses")
    return 0


def read_meta(saved: Mapping[str, Any], path: Path) -> dict[str, Any]:
    """What `hardstep train` notes of a run: its task, data, seed and number of steps.

    Raises:
        CheckpointError: Something else has written the checkpoint.
    """
    meta: dict[str, Any] = saved.get("meta", {})
    known = {**meta, "step": saved["optimizer"].get("step")}
    for name, is_one in META.items():
        seen = known.get(name)
        if not is_one(seen):
            fault = f"does not say its {name}" if seen is None else f"says {name} {show(seen)}"
            raise CheckpointError(f"{path} was not written by `hardstep train`: it {fault}")
    return {name: value for name, value in meta.items() if name in META or isinstance(value, str)}


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
