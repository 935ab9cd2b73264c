"""Networks of SpikingJelly, trained without their surrogate gradients (pip install spikingjelly).

hardstep train examples/spikingjelly_model.py:linear
hardstep train examples/spikingjelly_model.py:convolutional
hardstep compare examples/spikingjelly_model.py:linear --methods polystep,adam --match time

Layers and neurons are SpikingJelly's, as its tutorials use them. Neurons keep their membranes from
one call to the next, so `forward` starts by resetting them.
"""

from functools import partial

from spikingjelly.activation_based import functional, layer, neuron
from torch import Tensor, nn

from hardstep.data import digits
from hardstep.optim.presets import general
from hardstep.tasks import Task


class Net(nn.Module):
    """Layers in single-step mode, called once per time step."""

    def __init__(self, *layers: nn.Module, num_steps: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(*layers)
        self.num_steps = num_steps

    def forward(self, x: Tensor) -> Tensor:
        """How often each output unit fired, as a score per class."""
        functional.reset_net(self)
        counts = 0.0
        for _ in range(self.num_steps):
            counts = counts + self.layers(x)
        return counts


def linear_net() -> Net:
    """Two linear layers over 15 time steps."""
    layers = (
        layer.Linear(64, 64),
        neuron.IFNode(),
        layer.Linear(64, 10),
        neuron.IFNode(),
    )
    return Net(*layers, num_steps=15)


def convolutional_net() -> Net:
    """Two convolutions with pooling over 10 time steps."""
    layers = (
        nn.Unflatten(1, (1, 8, 8)),
        layer.Conv2d(1, 8, kernel_size=3, padding=1),
        layer.MaxPool2d(2, 2),
        neuron.IFNode(),
        layer.Conv2d(8, 16, kernel_size=3, padding=1),
        layer.MaxPool2d(2, 2),
        neuron.IFNode(),
        layer.Flatten(),
        layer.Linear(16 * 2 * 2, 10),
        neuron.IFNode(),
    )
    return Net(*layers, num_steps=10)


task = partial(Task, data=digits, settings=partial(general, rank=4, step_radius=0.2))
linear = task(
    "linear",
    "SpikingJelly network, 64–64–10 integrating units, 15 time steps",
    model=linear_net,
    twin=linear_net,
    steps=60,
)
convolutional = task(
    "convolutional",
    "SpikingJelly network, two convolutions with integrating units, 10 time steps",
    model=convolutional_net,
    twin=convolutional_net,
    steps=100,
)
