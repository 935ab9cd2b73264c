"""The six hard architectures on the bundled 8×8 digits.

All use `presets.general`, chosen on validation accuracy with seeds 10–12 (docs/choosing.md);
the paper's settings belong to MNIST-sized models.
"""

from functools import partial

from hardstep import nn as hard
from hardstep import presets
from hardstep.data import digits, digits_and_negatives
from hardstep.tasks.base import Task

PIXELS = 64


TASKS = {
    task.name: task
    for task in (
        Task(
            name="snn",
            title="spiking network, 64–128–10 LIF units, 15 time steps",
            data=digits,
            model=partial(hard.spiking_mlp, PIXELS, 128, 10),
            settings=partial(presets.general, rank=4, step_radius=0.2),
            steps=200,
        ),
        Task(
            name="mlp",
            title="ReLU network 64–64–10",
            data=digits,
            model=partial(hard.mlp, PIXELS, 64, 10),
            settings=presets.general,
            steps=120,
        ),
        Task(
            name="int8",
            title="64–64–64–10 with an INT8 middle layer",
            data=digits,
            model=partial(hard.int8_mlp, PIXELS, 64, 10),
            settings=presets.general,
            steps=120,
        ),
        Task(
            name="staircase",
            title="64–64–64–10 with five-level staircase activations",
            data=digits,
            model=partial(hard.staircase_mlp, PIXELS, 64, 10),
            settings=partial(presets.general, step_radius=0.3),
            steps=200,
        ),
        Task(
            name="argmax",
            title="argmax attention over eight keys",
            data=digits,
            model=partial(hard.argmax_net, PIXELS, 64, 10),
            settings=presets.general,
            steps=120,
        ),
        Task(
            name="moe",
            title="top-1 mixture of four experts, digits and their negatives",
            data=digits_and_negatives,
            model=partial(hard.moe_net, PIXELS, 64, 20),
            settings=partial(presets.general, rank=4),
            steps=100,
        ),
    )
}
