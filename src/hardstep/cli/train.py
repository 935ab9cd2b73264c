"""`hardstep train`: one run, from data to picture."""

import json
import shlex
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from hardstep import nn as hard
from hardstep import tasks
from hardstep._files import check_folder, provenance
from hardstep.bench.options import find_preset
from hardstep.cli.evaluate import CHECKPOINT, read_meta, restore
from hardstep.cli.hints import find_program, format_evaluate
from hardstep.cli.options import TrainOptions
from hardstep.cli.output import print
from hardstep.cli.results import RESULT, read_result, write_result
from hardstep.cli.workers import Workers, describe_workers, open_workers
from hardstep.data import Batches, DataSet
from hardstep.errors import CheckpointError, ConfigError
from hardstep.optim import PolyStep
from hardstep.optim.settings import describe
from hardstep.rl.agent import Agent
from hardstep.tasks import Task, stop_at_goal
from hardstep.tasks.dry_run import try_model
from hardstep.tasks.files import is_address, run_name
from hardstep.tasks.policies import FIRST_TEST, is_policy, name_policy
from hardstep.tasks.task import key_of
from hardstep.training import (
    ACCURACY,
    INTERRUPTED,
    Checkpoint,
    FitResult,
    JsonlLog,
    ProgressBar,
    Validation,
    checkpoints,
    fit,
)
from hardstep.training.logs import read_log

LOG, PICTURE, FILM = "log.jsonl", "picture.png", "film.gif"


def run_train(options: TrainOptions) -> int:
    """Train, score, draw, report; returns the exit code."""
    name = options.task
    if options.gif and not is_policy(name):
        raise ConfigError(f"--gif films a policy, and {name} trains none; leave it out")
    if options.precision != "float":
        name = name_policy(name, options.precision)
    task = _choose_settings(tasks.find(name, options.data), options.preset)
    folder = choose_folder(task, options)
    steps = options.steps or task.steps
    if options.resume:
        saved = checkpoints.load(folder / CHECKPOINT)
        steps = _check_same_run(task, read_meta(saved, folder / CHECKPOINT), options, folder)
        if (folder / RESULT).exists():
            result = read_result(task, folder)
            if not (folder / PICTURE).exists():
                _draw_again(task, saved, folder, result)
            return _report(task, result, folder, options)
    with open_workers(options) as engine:
        return _train(task, folder, steps, options, saved if options.resume else None, engine)


def _train(
    task: Task,
    folder: Path,
    steps: int,
    options: TrainOptions,
    saved: dict[str, Any] | None,
    engine: Workers | None,
) -> int:
    """The run itself; of several ranks, the first one writes and reports."""
    leads = bool(getattr(engine, "leads", True))
    if leads:
        check_folder(folder, "--out")
    dataset = task.data(options.seed)
    model = hard.build(task.model, options.seed)
    if saved is not None:
        restore(model, saved["model"], folder / CHECKPOINT, task)
    try_model(task, dataset, model)
    optimizer = PolyStep(model, task.settings(steps), seed=options.seed, evaluator=engine)
    if leads:
        _announce(task, optimizer, steps, folder)
    meta = {"task": task.name, "data": task.data_name, "seed": options.seed, "steps": steps}
    meta |= {} if options.preset == "task" else {"preset": options.preset}
    meta["settings"] = describe(optimizer.settings)
    with dataset.seal():
        outcome = fit(
            model,
            Batches(dataset.train, task.batch_size, options.seed),
            Validation(
                Batches(dataset.valid, task.batch_size, options.seed, shuffle=False),
                task.metric,
                every=task.validation_interval(steps, dataset.valid),
                selects=task.selects,
            ),
            loss_fn=task.loss_fn,
            optimizer=optimizer,
            steps=steps,
            callbacks=(ProgressBar(), JsonlLog(folder / LOG), *stop_at_goal(task)),
            checkpoint=Checkpoint(folder / CHECKPOINT, meta=meta),
            resume=options.resume,
        )
    if not leads:
        return 130 if outcome.stopped == INTERRUPTED else 0
    if outcome.stopped == INTERRUPTED:
        return _report_interruption(task, outcome, folder, meta)
    result = _score(task, dataset, model, outcome, meta) | describe_workers(engine)
    write_result(folder, result)
    _draw(task, dataset, model, folder, result, options.gif)
    if options.coverage:
        print(optimizer.coverage(), file=sys.stderr)
    return _report(task, result, folder, options)


def _choose_settings(task: Task, preset: str) -> Task:
    """The task with a preset's settings; one that it does not have is refused here."""
    if preset == "task":
        return task
    find_preset(task, 1, preset)
    return replace(task, settings=lambda steps: find_preset(task, steps, preset))


def choose_folder(task: Task, options: TrainOptions) -> Path:
    """The run's folder: as asked, or a free one under runs/."""
    if options.out is not None:
        if not options.resume and (options.out / CHECKPOINT).exists():
            raise CheckpointError(
                f"{options.out} holds a run already; add --resume to continue it, or choose "
                "another --out"
            )
        return options.out
    stem = f"{run_name(task)}-seed{options.seed}"
    number, folder = 1, Path("runs") / stem
    while (folder / CHECKPOINT).exists():
        number += 1
        latest, folder = folder, Path("runs") / f"{stem}-{number}"
    if options.resume:
        if number == 1:
            raise CheckpointError(f"no run to resume at {folder}; name its folder with --out")
        return latest
    return folder


def _check_same_run(task: Task, meta: dict[str, Any], options: TrainOptions, folder: Path) -> int:
    """The number of steps of the run to resume, after checking that it is the one asked for."""
    asked = {"task": task.name, "data": task.data_name, "seed": options.seed}
    asked |= {} if options.steps is None else {"steps": options.steps}
    asked["preset"], meta = options.preset, {"preset": "task"} | meta
    for name, value in asked.items():
        if meta.get(name) != value:
            raise CheckpointError(
                f"{folder} holds a run with {name} {meta.get(name)!r}, not {value!r}; "
                f"resume with: {_format_resume(meta, folder)}"
            )
    return int(meta["steps"])


def _format_resume(meta: dict[str, Any], folder: Path) -> str:
    name = str(meta.get("task"))
    data = [] if is_address(name) else ["--data", str(meta.get("data"))]
    preset = [] if meta.get("preset", "task") == "task" else ["--preset", str(meta["preset"])]
    parts = ["train", name, *data, *preset]
    parts += ["--seed", str(meta.get("seed")), "--out", str(folder)]
    return f"{find_program()} {shlex.join([*parts, '--resume'])}"


def _announce(task: Task, optimizer: PolyStep, steps: int, folder: Path) -> None:
    num = optimizer.num_particles
    note = (
        f"{task.title}: {optimizer.subspace.layout.num_parameters:,} parameters, "
        f"{num:,} particle{'' if num == 1 else 's'}, {steps:,} steps of "
        f"{optimizer.evaluations_per_step:,} evaluations\n"
        f"writing to {folder}; Ctrl-C keeps the {'best' if task.selects else 'last'}, "
        "--resume continues"
    )
    print(note, file=sys.stderr)


def _score(
    task: Task, dataset: DataSet, model: Any, outcome: FitResult, meta: dict[str, Any]
) -> dict[str, Any]:
    test = dataset.open_test()
    score = task.score(model, test)
    chosen = outcome.best if task.selects else outcome.history[-1]
    assert chosen is not None
    played = {"return": score, "interactions": outcome.interactions} if outcome.interactions else {}
    return {
        **meta,
        **({} if task.metric == ACCURACY else {"metric": task.metric.describe()}),
        task.key("test"): score,
        **task.score_also(model, test, "test"),
        "test_examples": len(test),
        task.key("valid"): chosen.value,
        "selected_step": chosen.step,
        **played,
        "evaluations": outcome.evaluations,
        "seconds": outcome.seconds,
        "stopped": outcome.stopped,
        **provenance(),
    }


def _draw(
    task: Task,
    dataset: DataSet,
    model: Any,
    folder: Path,
    result: dict[str, Any],
    with_gif: bool = False,
) -> None:
    try:
        from hardstep.tasks.plots import draw
    except ImportError:
        print("no picture: matplotlib is missing, pip install 'hardstep[plot]'", file=sys.stderr)
        return
    if not (folder / LOG).exists():
        print(f"no picture: {folder / LOG} is missing", file=sys.stderr)
        return
    log = [line.row for line in read_log(folder / LOG)]
    if isinstance(model, Agent):
        _draw_policy(task, model, folder, log, result, with_gif)
        return
    draw(folder / PICTURE, task, model, dataset.valid, log, result)


def _draw_policy(
    task: Task,
    agent: Agent,
    folder: Path,
    log: list[dict[str, Any]],
    result: dict[str, Any],
    with_gif: bool,
) -> None:
    """The learning curve over interactions, and an episode of the trained policy."""
    from hardstep.rl.film import record, write_gif
    from hardstep.rl.plots import draw_policy

    film = None
    try:
        film = record(agent.environment.name, agent.policy, FIRST_TEST)
    except ConfigError as error:
        print(f"no film: {error}", file=sys.stderr)
    title = f"{task.title} — return {result['return']:.4g} in {result['test_examples']} episodes"
    told = {name: value for name, value in result.items() if name != "selected_step"}  # the last
    draw_policy(folder / PICTURE, title, log, told, film)
    if not with_gif or film is None:
        return
    if film.frames is None:
        print(f"no film: {film.environment} cannot be drawn here", file=sys.stderr)
    else:
        write_gif(folder / FILM, film)


def _draw_again(task: Task, saved: Mapping[str, Any], folder: Path, result: dict[str, Any]) -> None:
    """The picture of a run that was stopped after its result was written."""
    dataset, model = task.data(result["seed"]), hard.build(task.model, result["seed"])
    restore(model, saved["best_weights"] or saved["model"], folder / CHECKPOINT, task)
    _draw(task, dataset, model, folder, result)


def _report_interruption(task: Task, outcome: FitResult, folder: Path, meta: dict[str, Any]) -> int:
    best = outcome.best or (outcome.history[-1] if outcome.history else None)
    which = "best" if task.selects else "last"
    known = (
        f"{which} validation {task.metric.format(best.value)} at step {best.step}"
        if best
        else "no score"
    )
    print(
        f"interrupted after {outcome.steps} steps; {known}; everything is in {folder}\n"
        f"continue with: {_format_resume(meta, folder)}",
        file=sys.stderr,
    )
    return 130


def _report(task: Task, result: dict[str, Any], folder: Path, options: TrainOptions) -> int:
    files = {"checkpoint": CHECKPOINT, "log": LOG, "picture": PICTURE, "film": FILM}
    paths = {name: str(folder / file) for name, file in files.items() if (folder / file).exists()}
    if options.json:
        print(json.dumps(result | paths))
        return 0
    minutes, seconds = divmod(round(result["seconds"]), 60)
    test, valid = (result[task.key(part)] for part in ("test", "valid"))
    if "interactions" in result:
        return _print_rows(_describe_play(task, result, paths, folder))
    num = f"{result['test_examples']:,}"
    if task.metric == ACCURACY:
        num = f"{round(test * result['test_examples']):,} of {num}"
    rows = {
        f"test {task.metric.name}": f"{task.metric.format(test)}  ({num} test examples)",
        **describe_also(task, result),
        "validation": f"{task.metric.format(valid)}  at step {result['selected_step']} of "
        f"{result['steps']}, whose weights are the result",
        "evaluations": f"{result['evaluations']:,} in {minutes} min {seconds} s "
        f"({result['evaluations'] / result['seconds']:,.0f}/s)",
        **describe_sharing(result),
        **paths,
        "score again": format_evaluate(folder / CHECKPOINT, task.name),
        "resume": f"{_format_resume(result, folder)}  (after Ctrl-C or a crash)",
    }
    return _print_rows(rows)


def _describe_play(
    task: Task, result: dict[str, Any], paths: dict[str, str], folder: Path
) -> dict[str, str]:
    """What is told of a policy's run."""
    minutes, seconds = divmod(round(result["seconds"]), 60)
    count = result["interactions"]
    return {
        "return": f"{result['return']:.4g}  (mean of {result['test_examples']} episodes with seeds "
        "that training did not use)",
        "interactions": f"{count:,} in {minutes} min {seconds} s "
        f"({count / result['seconds']:,.0f}/s)",
        "stopped": f"{result['stopped']}, after {result['selected_step']} steps and "
        f"{result['evaluations']:,} evaluations",
        **describe_sharing(result),
        **paths,
        "play again": format_evaluate(folder / CHECKPOINT, task.name),
        "resume": f"{_format_resume(result, folder)}  (after Ctrl-C or a crash)",
    }


def describe_also(task: Task, scores: Mapping[str, Any]) -> dict[str, str]:
    """The other metrics of the test part; results of before may lack one."""
    keys = ((metric, key_of(metric, "test")) for metric in task.also)
    return {f"test {m.name}": m.format(scores[key]) for m, key in keys if key in scores}


def describe_sharing(result: dict[str, Any]) -> dict[str, str]:
    """Who shared the work, if anybody did."""
    counts = result.get("distributed")
    if not counts:
        return {}
    what = {
        "retries": "tiles handed out again",
        "lost": "workers lost",
        "left_out": "tiles left out",
    }
    said = [f"{words}: {counts[name]:,}" for name, words in what.items() if counts.get(name)]
    waiting = f"waiting for {counts['waiting']:.0%} of their time"
    return {"workers": "; ".join([f"{counts['workers']}, {waiting}", *said])}


def _print_rows(rows: dict[str, str]) -> int:
    width = 1 + max(map(len, rows))
    for name, text in rows.items():
        print(f"{name:<{width}}{text}")
    return 0
