"""Small networks from the layers of snnTorch and SpikingJelly, for `spiking_libraries`.

Pictures are the bundled digits, 8 × 8. Every network is written as the tutorials of its library
write theirs, and starts from rest in every forward pass unless `carries_state`. snnTorch's spikes
are float32 whatever the weights are, so they are cast to the pictures' type.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import snntorch as snn
from snntorch import utils
from spikingjelly.activation_based import functional, layer, neuron
from torch import Tensor, nn

STEPS = 5  # over time
CHANNELS = 8
CLASSES = 10
Make = Callable[[], nn.Module]


class Jelly(nn.Module):
    """Layers of SpikingJelly in a row; single-step (`s`) in a loop, or multi-step (`m`)."""

    def __init__(self, mode: str, *layers: nn.Module, carries_state: bool = False) -> None:
        super().__init__()
        self.layers = nn.Sequential(*layers)
        self.carries_state = carries_state
        self.mode = mode
        functional.set_step_mode(self, mode)

    def forward(self, x: Tensor) -> Tensor:
        """Firing rates, (batch, classes)."""
        if not self.carries_state:
            functional.reset_net(self)
        if self.mode == "m":
            repeated: Tensor = x.unsqueeze(0).expand(STEPS, *x.shape)
            return self.layers(repeated).mean(0)
        rates: Tensor = sum(self.layers(x) for _ in range(STEPS)) / STEPS
        return rates


def jelly_mlp(node: Make, mode: str, **options: Any) -> nn.Module:
    """Two linear layers."""
    layers = [layer.Flatten(), layer.Linear(64, 32), node(), layer.Linear(32, CLASSES), node()]
    return Jelly(mode, *layers, **options)


def jelly_cnn(node: Make, mode: str, norm: bool = False, pool: Make | None = None) -> nn.Module:
    """The network of its tutorial on convolutions (CSNN), smaller."""
    pool = pool or partial(layer.MaxPool2d, 2, 2)
    layers: list[nn.Module] = []
    for channels in (1, CHANNELS):
        layers.append(layer.Conv2d(channels, CHANNELS, 3, padding=1, bias=False))
        layers += [layer.BatchNorm2d(CHANNELS)] if norm else []
        layers += [node(), pool()]
    layers += [layer.Flatten(), layer.Linear(CHANNELS * 4, 16, bias=False), node()]
    return Jelly(mode, *layers, layer.Linear(16, CLASSES, bias=False), node())


def jelly_contained() -> nn.Module:
    """Layers of torch itself in the container that folds time into the batch."""
    folded = layer.SeqToANNContainer
    return Jelly(
        "m",
        folded(nn.Conv2d(1, CHANNELS, 3, padding=1), nn.MaxPool2d(2)),
        neuron.LIFNode(),
        folded(nn.Flatten(), nn.Linear(CHANNELS * 16, CLASSES)),
        neuron.LIFNode(),
    )


class Torch(nn.Module):
    """Layers, each with neurons of snnTorch that are given their states."""

    def __init__(self, node: Callable[[int], nn.Module], layers: list[nn.Module]) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)
        sizes = [module.weight.shape[0] for stage in layers for module in _weighted(stage)]
        self.neurons = nn.ModuleList([node(size) for size in sizes])

    def forward(self, x: Tensor) -> Tensor:
        """Spike counts, (batch, classes)."""
        states = [_tuple(node.reset_mem()) for node in self.neurons]
        counts: Any = 0
        for _ in range(STEPS):
            spikes = x
            for place, (stage, node) in enumerate(zip(self.layers, self.neurons, strict=True)):
                found = node(stage(spikes), *states[place])
                spikes, states[place] = found[0].to(x.dtype), found[-len(states[place]) :]
            counts = counts + spikes
        return counts


class TorchHidden(nn.Module):
    """Layers and neurons of snnTorch in a row, whose states are hidden in the neurons."""

    def __init__(self, layers: list[nn.Module], carries_state: bool = False) -> None:
        super().__init__()
        self.carries_state = carries_state
        self.stages = nn.ModuleList(
            [nn.Sequential(stage, snn.Leaky(0.9, init_hidden=True)) for stage in layers]
        )

    def forward(self, x: Tensor) -> Tensor:
        """Spike counts, (batch, classes)."""
        if not self.carries_state:
            utils.reset(self)
        counts: Any = 0
        for _ in range(STEPS):
            spikes = x
            for stage in self.stages:
                spikes = stage(spikes).to(x.dtype)
            counts = counts + spikes
        return counts


def _weighted(stage: nn.Module) -> list[nn.Module]:
    return [module for module in stage.modules() if isinstance(module, nn.Linear | nn.Conv2d)]


def _tuple(states: Any) -> tuple[Tensor, ...]:
    return states if isinstance(states, tuple) else (states,)


def linear_layers() -> list[nn.Module]:
    """What snnTorch's neurons are put behind in a network of linear layers."""
    return [nn.Sequential(nn.Flatten(), nn.Linear(64, 32)), nn.Linear(32, CLASSES)]


def conv_layers() -> list[nn.Module]:
    """The same for a network with convolutions, pooled before the neurons."""
    return [
        nn.Sequential(nn.Conv2d(1, CHANNELS, 3, padding=1), nn.MaxPool2d(2)),
        nn.Sequential(nn.Conv2d(CHANNELS, CHANNELS, 3, padding=1), nn.MaxPool2d(2)),
        nn.Sequential(nn.Flatten(), nn.Linear(CHANNELS * 4, CLASSES)),
    ]


def _jelly() -> dict[str, Make]:
    """The networks from SpikingJelly's layers, by what is special about each."""
    nodes: dict[str, Make] = {
        "LIFNode": neuron.LIFNode,
        "LIFNode(decay_input=False)": partial(neuron.LIFNode, decay_input=False),
        "LIFNode(v_reset=None)": partial(neuron.LIFNode, v_reset=None),
        "LIFNode(detach_reset=True)": partial(neuron.LIFNode, detach_reset=True),
        "IFNode": neuron.IFNode,
        "ParametricLIFNode": neuron.ParametricLIFNode,
    }
    found: dict[str, Make] = {}
    for mode, word in (("s", "single-step"), ("m", "multi-step")):
        for name, node in nodes.items():
            found[f"linear, {name}, {word}"] = partial(jelly_mlp, node, mode)
        for name in ("LIFNode", "LIFNode(v_reset=None)", "IFNode", "ParametricLIFNode"):
            found[f"convolutional, {name}, {word}"] = partial(jelly_cnn, nodes[name], mode)
        normed = partial(jelly_cnn, nodes["IFNode"], mode, norm=True)
        found[f"convolutional, IFNode, BatchNorm2d, {word}"] = normed
        pooled = partial(jelly_cnn, nodes["IFNode"], mode, pool=partial(layer.AvgPool2d, 2))
        found[f"convolutional, IFNode, AvgPool2d, {word}"] = pooled
        carried = partial(jelly_mlp, nodes["LIFNode"], mode, carries_state=True)
        found[f"linear, LIFNode, not reset, {word}"] = carried
    return found | {"convolutional, LIFNode, SeqToANNContainer": jelly_contained}


def _snntorch() -> dict[str, Make]:
    """The networks from snnTorch's neurons."""
    learned = {"learn_beta": True, "learn_threshold": True}
    nodes: dict[str, Callable[[int], nn.Module]] = {
        'Leaky(reset_mechanism="subtract")': lambda _: snn.Leaky(0.9),
        'Leaky(reset_mechanism="zero")': lambda _: snn.Leaky(0.9, reset_mechanism="zero"),
        'Leaky(reset_mechanism="none")': lambda _: snn.Leaky(0.9, reset_mechanism="none"),
        "Leaky(learn_beta, learn_threshold)": lambda _: snn.Leaky(0.9, **learned),
        "Lapicque": lambda _: snn.Lapicque(0.9),
        "Synaptic": lambda _: snn.Synaptic(0.8, 0.9),
        "Alpha": lambda _: snn.Alpha(0.9, 0.8),
        "RLeaky": lambda size: snn.RLeaky(0.9, linear_features=size),
    }
    found: dict[str, Make] = {}
    for name, node in nodes.items():
        found[f"linear, {name}"] = lambda node=node: Torch(node, linear_layers())
    one_to_one = {"all_to_all": False, "V": 0.5}
    nodes["RLeaky"] = lambda _: snn.RLeaky(0.9, **one_to_one)
    for name, node in nodes.items():
        found[f"convolutional, {name}"] = lambda node=node: Torch(node, conv_layers())
    for kind, make in (("linear", linear_layers), ("convolutional", conv_layers)):
        found[f"{kind}, Leaky(init_hidden=True)"] = lambda make=make: TorchHidden(make())
    return found | {
        "linear, Leaky(init_hidden=True), not reset": lambda: TorchHidden(
            linear_layers(), carries_state=True
        )
    }


def networks() -> dict[tuple[str, str], Make]:
    """All of them, by library and name."""
    made = {"snntorch": _snntorch(), "spikingjelly": _jelly()}
    return {(library, name): make for library, of in made.items() for name, make in of.items()}
