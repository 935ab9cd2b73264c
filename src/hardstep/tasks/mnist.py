"""The hard architectures on MNIST, and for `moe` also Fashion-MNIST, at the paper's sizes.

Models, ranks, batches and steps are the paper's; the settings are `presets.wide`. The paper has
no `binary` and `ternary` network; theirs are those of `int8`.
"""

from functools import partial

from hardstep.data import mnist, mnist_and_fashion
from hardstep.presets import wide
from hardstep.tasks.vision import Images, image_task

_MNIST = Images(mnist, "mnist", "MNIST", pixels=784, classes=10)
_WITH_FASHION = Images(
    mnist_and_fashion, "mnist", "MNIST and Fashion-MNIST", pixels=784, classes=20
)

_STEPS = 30 * 106  # epochs of 54,000 images
_STEPS_WITH_FASHION = 30 * 211  # epochs of 108,000 images

_task = partial(image_task, hidden=128, batch_size=512)

TASKS = {
    task.name: task
    for task in (
        _task("snn", _MNIST, settings=partial(wide, rank=4), steps=_STEPS),
        _task("mlp", _MNIST, settings=partial(wide, rank=8), steps=_STEPS),
        _task("int8", _MNIST, settings=partial(wide, rank=8), steps=_STEPS),
        _task("binary", _MNIST, settings=partial(wide, rank=8), steps=_STEPS),
        _task("ternary", _MNIST, settings=partial(wide, rank=8), steps=_STEPS),
        _task("staircase", _MNIST, settings=partial(wide, rank=4), steps=_STEPS),
        _task("argmax", _MNIST, settings=partial(wide, rank=8), steps=_STEPS),
        _task("moe", _WITH_FASHION, settings=partial(wide, rank=4), steps=_STEPS_WITH_FASHION),
    )
}
