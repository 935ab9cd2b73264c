"""The six hard architectures on the bundled 8×8 digits.

Settings were chosen on validation accuracy with seeds 10–12 (docs/choosing.md); they are not
the paper's, which belong to MNIST-sized models and are in `hardstep.presets`.
"""

from functools import partial

from hardstep import nn as hard
from hardstep.data import digits, digits_and_negatives
from hardstep.optim import Momentum, Settings
from hardstep.schedules import Cosine, Length
from hardstep.subspaces import RowWise
from hardstep.tasks.base import Task

PIXELS = 64


def short_steps(steps: int) -> Settings:
    """Cold and short-stepped: nearly every particle takes its best direction, by a little."""
    return Settings(
        subspace=RowWise(rank=8),
        temperature=0.02,
        step_radius=Length(Cosine(1.0, 0.03, steps)),
        probe_radius=Length(1.0),
        rules=(Momentum(0.7),),
    )


def spiking(steps: int) -> Settings:
    """The same with the spiking network's own reach."""
    return short_steps(steps).changed(subspace=RowWise(rank=4))


TASKS = {
    task.name: task
    for task in (
        Task(
            name="snn",
            title="spiking network, 64–128–10 LIF units, 15 time steps",
            data=digits,
            model=partial(hard.spiking_mlp, PIXELS, 128, 10),
            settings=spiking,
            steps=200,
        ),
        Task(
            name="mlp",
            title="ReLU network 64–64–10",
            data=digits,
            model=partial(hard.mlp, PIXELS, 64, 10),
            settings=short_steps,
            steps=150,
        ),
        Task(
            name="int8",
            title="64–64–64–10 with an INT8 middle layer",
            data=digits,
            model=partial(hard.int8_mlp, PIXELS, 64, 10),
            settings=short_steps,
            steps=150,
        ),
        Task(
            name="staircase",
            title="64–64–64–10 with five-level staircase activations",
            data=digits,
            model=partial(hard.staircase_mlp, PIXELS, 64, 10),
            settings=short_steps,
            steps=150,
        ),
        Task(
            name="argmax",
            title="argmax attention over eight keys",
            data=digits,
            model=partial(hard.argmax_net, PIXELS, 64, 10),
            settings=short_steps,
            steps=150,
        ),
        Task(
            name="moe",
            title="top-1 mixture of four experts, digits and their negatives",
            data=digits_and_negatives,
            model=partial(hard.moe_net, PIXELS, 64, 20),
            settings=short_steps,
            steps=150,
        ),
    )
}
