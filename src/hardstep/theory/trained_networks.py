"""Networks of the protocols that train (I7, J2), their data, and ways to spoil them."""

from contextlib import suppress
from typing import Any, NamedTuple

import torch

from hardstep.data import Batches, DataSet
from hardstep.errors import DataError
from hardstep.nn import build
from hardstep.tasks import Task, find
from hardstep.theory.pwc_loss import Batch
from hardstep.theory.suite import Setup


def load_data(name: str, setup: Setup, seed: int) -> tuple[Task, DataSet]:
    """A task of the gallery and its data: MNIST where it is to be had, digits in quick runs."""
    if not setup.quick:
        with suppress(DataError):
            task = find(name, "mnist")
            return task, task.data(seed)
    task = find(name)
    return task, task.data(seed)


class Trained(NamedTuple):
    """A hard model with trained weights and some of its examples, in float64."""

    model: Any
    batch: Batch
    data: str  # what it is called


def train_twin(name: str, setup: Setup, num: int, steps: int, rate: float) -> Trained:
    """A task's model with weights that Adam found for its smooth twin, and `num` examples."""
    task, data = load_data(name, setup, setup.seed)
    assert task.twin is not None
    twin, model = build(task.twin, setup.seed), build(task.model, setup.seed)
    batches = Batches(data.train, task.batch_size, setup.seed)
    adam = torch.optim.Adam(twin.parameters(), lr=rate)
    for step in range(steps):
        inputs, labels = batches.batch(*divmod(step, len(batches)))
        adam.zero_grad()
        torch.autograd.backward(task.loss_fn(twin(inputs), labels))
        adam.step()
    model.load_state_dict(twin.state_dict())
    inputs, labels = Batches(data.train, num, setup.seed).batch(0, 0)
    batch = Batch(inputs.double(), labels)
    return Trained(model.double().requires_grad_(False), batch, data.name)


def blind(model: Any, every: int) -> None:
    """Cut the readout off from every so many-th unit."""
    model[-1].weight[:, ::every] = 0.0


def make_alike(model: Any, share: float) -> None:
    """Leave this share of what tells a mixture's experts from the first one."""
    first = [weight.clone() for weight in model[2].experts[0].parameters()]
    for expert in model[2].experts:
        for weight, common in zip(expert.parameters(), first, strict=True):
            weight.copy_(common + share * (weight - common))
