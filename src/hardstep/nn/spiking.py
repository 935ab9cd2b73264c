"""Leaky integrate-and-fire neurons and networks of them (the paper's SNN benchmark).

    m <- decay * m + I        integrate the current I, leak the rest
    s  = 1[m >= threshold]    fire
    m <- m * (1 - s)          a neuron that fired starts again from 0

State is explicit: a neuron takes its membrane and returns the next one, and a network starts
every call at rest, so nothing is remembered between calls. Without autograd a network holds one
membrane per layer and the spike count, whatever the number of steps.
"""

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterator, Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn

from hardstep._checks import check_count
from hardstep.errors import ConfigError
from hardstep.nn import lif_kernel


class Neuron(nn.Module, ABC):
    """One step of a leaky neuron of any shape; subclasses say what firing is."""

    def __init__(self, decay: float = 0.95, threshold: float = 1.0) -> None:
        super().__init__()
        if not 0.0 <= decay <= 1.0:
            raise ConfigError(f"{type(self).__name__}: decay must lie in [0, 1], got {decay}")
        self.decay = decay
        self.threshold = threshold

    @abstractmethod
    def fire(self, membrane: Tensor) -> Tensor:
        """The spikes of these membranes, same shape."""

    def forward(self, current: Tensor, membrane: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Spikes and the next membrane, both shaped as the current; no membrane means at rest."""
        charged = current if membrane is None else self.decay * membrane + current
        spikes = self.fire(charged)
        return spikes, charged * (1.0 - spikes)

    def extra_repr(self) -> str:
        """The constants, for printing the module."""
        return f"decay={self.decay}, threshold={self.threshold}"


class LIF(Neuron):
    """The hard neuron, spikes are 0 or 1; the one to train without gradients."""

    def fire(self, membrane: Tensor) -> Tensor:
        """1 where the membrane reached the threshold, else 0."""
        return (membrane >= self.threshold).to(membrane.dtype)

    def forward(self, current: Tensor, membrane: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """The same numbers as any neuron's, in one pass over memory where that can be."""
        if type(self).fire is LIF.fire:
            stepped = lif_kernel.step(current, membrane, self.decay, self.threshold)
            if stepped is not None:
                return stepped
        return super().forward(current, membrane)


class SmoothLIF(Neuron):
    """The twin of `LIF` for backpropagation: s = sigmoid(slope * (m - threshold)).

    A steep slope is close to the hard neuron and hard to train, a flat one the reverse.
    """

    def __init__(self, decay: float = 0.95, threshold: float = 1.0, slope: float = 5.0) -> None:
        super().__init__(decay, threshold)
        if not slope > 0.0:
            raise ConfigError(f"SmoothLIF: slope must be > 0, got {slope}")
        self.slope = slope

    def fire(self, membrane: Tensor) -> Tensor:
        """A spike between 0 and 1."""
        return torch.sigmoid(self.slope * (membrane - self.threshold))

    def extra_repr(self) -> str:
        """The constants, for printing the module."""
        return f"{super().extra_repr()}, slope={self.slope}"


class SurrogateLIF(SmoothLIF):
    """The hard neuron forward, the gradient of `SmoothLIF` backward (Neftci et al. 2019)."""

    def fire(self, membrane: Tensor) -> Tensor:
        """Exactly the spikes of `LIF`; autograd sees the smooth ones."""
        soft = super().fire(membrane)
        return (membrane >= self.threshold).to(soft.dtype) + (soft - soft.detach())


class SpikingNet(nn.Module):
    """Any stages with a neuron after each, simulated `num_steps` times; returns spike counts.

    The same input drives every step, so the first stage is computed once. Prefer it over a loop
    of your own whenever the input does not change in time.
    """

    def __init__(
        self, stages: Sequence[nn.Module], num_steps: int = 15, lif: Neuron | None = None
    ) -> None:
        super().__init__()
        name = type(self).__name__
        check_count(f"{name}: num_steps", num_steps)
        if not stages:
            raise ConfigError(f"{name}: stages is empty; give at least one layer")
        self.stages = nn.ModuleList(stages)
        self.num_steps = num_steps
        self.lif = LIF() if lif is None else lif

    def forward(self, inputs: Tensor) -> Tensor:
        """How often each output unit fired, 0..num_steps (batch, units)."""
        current = self.stages[0](inputs)
        membranes = self._at_rest()
        counts = self._advance(current, membranes)
        for _ in range(1, self.num_steps):
            counts = counts + self._advance(current, membranes)
        return counts

    def spike_trains(self, inputs: Tensor) -> tuple[Tensor, ...]:
        """Every spike of every layer (num_steps, batch, ...), for drawing a raster."""
        current = self.stages[0](inputs)
        membranes = self._at_rest()
        steps = [tuple(self._spikes(current, membranes)) for _ in range(self.num_steps)]
        return tuple(torch.stack(layer) for layer in zip(*steps, strict=True))

    def _at_rest(self) -> list[Tensor | None]:
        return [None] * len(self.stages)

    def _spikes(self, current: Tensor, membranes: list[Tensor | None]) -> Iterator[Tensor]:
        """One step, layer by layer; replaces the entries of `membranes`."""
        spikes, membranes[0] = self.lif(current, membranes[0])
        yield spikes
        for index in range(1, len(self.stages)):
            spikes, membranes[index] = self.lif(self.stages[index](spikes), membranes[index])
            yield spikes

    def _advance(self, current: Tensor, membranes: list[Tensor | None]) -> Tensor:
        """One step; only the output spikes are kept."""
        return deque(self._spikes(current, membranes), maxlen=1).pop()


class SpikingMLP(SpikingNet):
    """Linear layers with a neuron after each: the paper's SNN at sizes (784, 128, 10)."""

    def __init__(
        self,
        sizes: Sequence[int] = (784, 128, 10),
        num_steps: int = 15,
        lif: Neuron | None = None,
    ) -> None:
        if len(sizes) < 2:
            raise ConfigError(f"SpikingMLP: sizes needs inputs and outputs, got {tuple(sizes)}")
        super().__init__([nn.Linear(m, n) for m, n in pairwise(sizes)], num_steps, lif)


class SpikingVGG11Small(SpikingNet):
    """VGG-11 at half width on 3 x 32 x 32 images, 2.4 M parameters; for measuring memory.

    Eight convolutions and three linear layers with a neuron after each; pooled five times. At
    torch's initial weights its deep layers are silent; scale them by three to see spikes.
    """

    _CHANNELS = (32, 64, 128, 128, 256, 256, 256, 256)
    _POOLED_BEFORE = frozenset({1, 2, 4, 6})

    def __init__(
        self, num_steps: int = 25, num_classes: int = 10, lif: Neuron | None = None
    ) -> None:
        stages: list[nn.Module] = []
        for index, (before, after) in enumerate(pairwise((3, *self._CHANNELS))):
            convolution = nn.Conv2d(before, after, kernel_size=3, padding=1)
            pooled = index in self._POOLED_BEFORE
            stages.append(nn.Sequential(nn.MaxPool2d(2), convolution) if pooled else convolution)
        width = self._CHANNELS[-1]
        stages.append(nn.Sequential(nn.MaxPool2d(2), nn.Flatten(), nn.Linear(width, width)))
        stages.append(nn.Linear(width, width))
        stages.append(nn.Linear(width, num_classes))
        super().__init__(stages, num_steps, lif)
