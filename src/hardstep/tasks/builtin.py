"""The hard architectures on the bundled 8×8 digits.

All use `presets.general`, chosen on validation accuracy with seeds 10–12 (docs/choosing.md);
the paper's settings belong to MNIST-sized models. `binary` and `ternary` took over those of
`int8`: validation after the last step was 96.5, 96.5, 95.8 % and 98.6, 95.8, 96.5 % with these
seeds, and a step radius of 0.1 no better (`binary`, seed 11: 95.8 %).
"""

from functools import partial

from hardstep.data import digits, digits_and_negatives
from hardstep.optim.presets import general
from hardstep.tasks.architectures import Images, image_task

_DIGITS = Images(digits, "digits", "digits", pixels=64, classes=10)
_WITH_NEGATIVES = Images(
    digits_and_negatives, "digits", "digits and their negatives", pixels=64, classes=20
)

_task = partial(image_task, batch_size=128)

TASKS = {
    task.name: task
    for task in (
        _task("snn", _DIGITS, 128, partial(general, rank=4, step_radius=0.2), steps=200),
        _task("mlp", _DIGITS, 64, general, steps=120),
        _task("int8", _DIGITS, 64, general, steps=120),
        _task("binary", _DIGITS, 64, general, steps=120),
        _task("ternary", _DIGITS, 64, general, steps=120),
        _task("staircase", _DIGITS, 64, partial(general, step_radius=0.3), steps=200),
        _task("argmax", _DIGITS, 64, general, steps=120),
        _task("moe", _WITH_NEGATIVES, 64, partial(general, rank=4), steps=100),
    )
}
