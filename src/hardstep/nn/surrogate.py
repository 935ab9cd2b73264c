"""Surrogate gradients: a hard network forward, its smooth twin's slopes backward.

    y = hard(x) + soft(x) - [soft(x)],  what is in brackets being a constant to autograd

Adam then trains the network that is deployed, with a gradient that is not its own (Neftci et al.
2019; for signs and rounding the straight-through estimator, Bengio et al. 2013). PolyStep needs
none of this; it is what to compare with.
"""

from collections.abc import Callable
from copy import deepcopy

from torch import Tensor, nn

from hardstep.nn.quantized import Identity, Relaxed, StraightThrough, Transformed
from hardstep.nn.recurrent import HardLSTM, Step
from hardstep.nn.sign import Sign
from hardstep.nn.spiking import LIF, SurrogateLIF
from hardstep.nn.staircase import Staircase


class Surrogate(nn.Module):
    """A hard activation forward, a soft one backward."""

    def __init__(self, hard: nn.Module, soft: nn.Module) -> None:
        super().__init__()
        self.hard = hard
        self.soft = soft

    def forward(self, inputs: Tensor) -> Tensor:
        """Exactly what the hard one returns."""
        soft: Tensor = self.soft(inputs)
        hard: Tensor = self.hard(inputs)
        return hard.detach() + (soft - soft.detach())


_REPLACED: dict[type[nn.Module], Callable[..., nn.Module]] = {
    LIF: lambda lif: SurrogateLIF(lif.decay, lif.threshold),
    Sign: lambda sign: Surrogate(sign, nn.Hardtanh()),
    Staircase: lambda staircase: Surrogate(staircase, nn.Sigmoid()),
    Step: lambda step: Surrogate(step, nn.Sigmoid()),
}


def with_surrogates(model: nn.Module) -> nn.Module:
    """A copy that returns the same numbers and has a gradient where layers of ours are hard.

    Replaced are `LIF`, `Sign`, `Staircase`, `Step` and the transforms of weights; other layers
    keep the gradient they have. Parameters keep their names and values.
    """
    copy = nn.Sequential(deepcopy(model))  # so that every module has a parent
    for parent in list(copy.modules()):
        if isinstance(parent, Transformed | HardLSTM) and not isinstance(
            parent.transform, Identity | Relaxed
        ):
            parent.transform = StraightThrough(parent.transform)
        for name, child in parent.named_children():
            if type(child) in _REPLACED:
                setattr(parent, name, _REPLACED[type(child)](child))
    return copy[0]
