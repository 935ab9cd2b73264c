"""The hard architectures on flat images; a data set adds its sizes and settings."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from torch import nn

from hardstep import nn as hard
from hardstep.data import DataSet
from hardstep.optim import Settings
from hardstep.tasks.task import Task


@dataclass(frozen=True)
class Images:
    """What an architecture needs to know of its data; nothing is read before `load` is called."""

    load: Callable[[int], DataSet]
    name: str  # on the command line
    contents: str
    pixels: int
    classes: int


@dataclass(frozen=True)
class _Architecture:
    """A model of (pixels, hidden, classes), and its title as a format of these and `contents`."""

    build: Callable[..., nn.Module]
    title: str


_ARCHITECTURES = {
    "snn": _Architecture(
        hard.spiking_mlp,
        "spiking network, {pixels}–{hidden}–{classes} LIF units, 15 time steps",
    ),
    "mlp": _Architecture(hard.mlp, "ReLU network {pixels}–{hidden}–{classes}"),
    "int8": _Architecture(
        hard.int8_mlp, "{pixels}–{hidden}–{hidden}–{classes} with an INT8 middle layer"
    ),
    "binary": _Architecture(
        hard.binary_mlp, "{pixels}–{hidden}–{hidden}–{classes} with a middle layer of signs"
    ),
    "ternary": _Architecture(
        hard.ternary_mlp,
        "{pixels}–{hidden}–{hidden}–{classes} with a middle layer of −1, 0 and 1",
    ),
    "staircase": _Architecture(
        hard.staircase_mlp,
        "{pixels}–{hidden}–{hidden}–{classes} with five-level staircase activations",
    ),
    "argmax": _Architecture(hard.argmax_net, "argmax attention over eight keys, {contents}"),
    "moe": _Architecture(hard.moe_net, "top-1 mixture of four experts, {contents}"),
}


def image_task(
    name: str,
    images: Images,
    hidden: int,
    settings: Callable[[int], Settings],
    steps: int,
    batch_size: int,
) -> Task:
    """The architecture of that name on these images."""
    architecture = _ARCHITECTURES[name]
    return Task(
        name=name,
        title=architecture.title.format(
            pixels=images.pixels,
            hidden=hidden,
            classes=images.classes,
            contents=images.contents,
        ),
        data=images.load,
        model=partial(architecture.build, images.pixels, hidden, images.classes),
        settings=settings,
        steps=steps,
        batch_size=batch_size,
        twin=partial(architecture.build, images.pixels, hidden, images.classes, smooth=True),
        data_name=images.name,
    )
