"""A run does not depend on the number of cores."""

import pytest
import torch

from hardstep import PolyStep, tasks
from hardstep.nn import build


@pytest.fixture
def threads():
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)


@pytest.mark.parametrize("name", ["snn", "mlp", "int8", "argmax"])
def test_one_thread_and_several_end_with_the_same_weights(name, threads):
    task, found = tasks.find(name), []
    batch = task.data(0).train
    inputs, labels = batch.inputs[: task.batch_size], batch.labels[: task.batch_size]
    for num in (1, 2, 3):
        threads(num)
        model = build(task.model, seed=0)
        optimizer = PolyStep(model, task.settings(10), seed=0)
        for _ in range(2):
            optimizer.step(inputs, labels, task.loss_fn)
        found.append(torch.cat([p.detach().flatten() for p in model.parameters()]))
    assert torch.equal(found[0], found[1])
    assert torch.equal(found[0], found[2])
