"""A user's task tried on one batch, before a run writes or spends anything.

Data, model, loss and metric are called as a run will call them. What fails is named by its field;
test examples are not touched, and no random number of the run is drawn.
"""

import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from hardstep import nn as hard
from hardstep.data import DataSet, Split
from hardstep.errors import ConfigError
from hardstep.evaluation import call_model, isolate
from hardstep.evaluation.sandbox import keep
from hardstep.tasks.files import file_of, is_address, translate_errors
from hardstep.tasks.task import Task
from hardstep.training import ACCURACY


def try_task(task: Task, seed: int) -> None:
    """Try a task before runs that make their data and models themselves.

    Raises:
        ConfigError: As `try_model`; or data or model cannot be made.
    """
    if is_address(task.name):
        with _same_generators():
            try_model(task, task.data(seed), hard.build(task.model, seed))


def try_model(task: Task, dataset: DataSet, model: nn.Module) -> None:
    """Try the model, the loss and the metric; built-in tasks need no trial.

    Raises:
        ConfigError: One of them fails, or does not return one number.
    """
    if not is_address(task.name):
        return
    _check_sizes(task, model)
    # A pass in training mode adds to running statistics, which are buffers.
    tensors = [*model.parameters(), *model.buffers()]
    with _same_generators(), torch.no_grad(), keep(tensors), isolate(model) as restore:
        batch = _select(dataset.train, task.batch_size)
        _check_metric(task, batch.labels)
        _check_number(
            task, "loss_fn", task.loss_fn, _compute_output(task, model, batch), batch.labels
        )
        restore()
        model.eval()
        batch = _select(dataset.valid, task.batch_size)
        function = task.metric.function
        _check_number(task, "metric", function, _compute_output(task, model, batch), batch.labels)


@contextmanager
def _same_generators() -> Iterator[None]:
    """Leave the global generators as they were."""
    python, numpy = random.getstate(), np.random.get_state()  # noqa: NPY002  # a user's may be it
    try:
        with torch.random.fork_rng(devices=[]):
            yield
    finally:
        random.setstate(python)
        np.random.set_state(numpy)  # noqa: NPY002


def _check_sizes(task: Task, model: nn.Module) -> None:
    for name, parameter in model.named_parameters():
        if nn.parameter.is_lazy(parameter):
            raise ConfigError(
                f"{task.name}: model has a parameter without a size, {name}; give sizes in the "
                "place of lazy modules, or call the model once in the function that makes it"
            )


def _check_metric(task: Task, labels: Tensor) -> None:
    if task.metric == ACCURACY and labels.is_floating_point():
        raise ConfigError(
            f"{task.name}: metric is accuracy, which compares classes, and labels are "
            f"{_describe(labels)}; make classes whole numbers, or give another metric, such as "
            'Metric("mse", torch.nn.functional.mse_loss)'
        )


def _select(split: Split, size: int) -> Split:
    """The first examples and, last, one of the largest class: no output may be missing for it."""
    index = torch.arange(min(size, len(split)))
    if _are_classes(split.labels):
        index[-1] = split.labels.argmax()
    return split.select(index)


def _are_classes(labels: Tensor) -> bool:
    return labels.dtype == torch.long and labels.dim() == 1


def _compute_output(task: Task, model: nn.Module, batch: Split) -> Any:
    kinds = {p.dtype for p in model.parameters() if p.is_floating_point()} - {batch.inputs.dtype}
    way_out = ""
    if kinds and batch.inputs.is_floating_point():
        own = ", ".join(sorted(map(_name, kinds)))
        way_out = f"its parameters are {own}: give it .float(), or data of that type"
    with translate_errors(
        f"{task.name}: model fails on inputs {_describe(batch.inputs)}", file_of(task), way_out
    ):
        return call_model(model, batch.inputs)


def _check_number(task: Task, field: str, function: Any, output: Any, labels: Tensor) -> None:
    """Refuse a function that fails or does not return one number."""
    on = f"output {_describe(output)} and labels {_describe(labels)}"
    way_out = ""
    if _are_classes(labels) and isinstance(output, Tensor) and output.dim() == 2:
        wanted = int(labels.max()) + 1
        way_out = f"give the model {wanted} outputs" if output.shape[1] < wanted else ""
    with translate_errors(f"{task.name}: {field} fails on {on}", file_of(task), way_out):
        value = function(output, labels)
    try:
        float(value)
    except (TypeError, ValueError, RuntimeError, OverflowError) as error:
        raise ConfigError(
            f"{task.name}: {field} must return one number, the mean over a batch, got "
            f"{_describe(value)}; reduce it, for instance with .mean()"
        ) from error


def _describe(value: Any) -> str:
    if not isinstance(value, Tensor):
        return f"of type {type(value).__name__}"
    text = f"{_name(value.dtype)} of shape {tuple(value.shape)}"
    if _are_classes(value) and len(value):
        text += f" from {int(value.min())} to {int(value.max())}"
    return text


def _name(kind: torch.dtype) -> str:
    return str(kind).removeprefix("torch.")
