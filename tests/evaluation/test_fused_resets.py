"""Dense directions through loops over time: neurons that reset in every way users write it.

A kernel puts the choice behind a threshold late in the chain, and steps two neurons side by side
where their number is even. Losses are those of plain forward passes.
"""

import pytest
import torch
import torch.nn.functional as F

from hardstep.evaluation import Problem
from hardstep.subspaces import LayerWise

from .fused_programs import CLASSES, INPUTS, linear
from .random_models import Hand
from .test_incremental import check_losses

STEPS = 5
RESETS = {
    "times what did not fire": lambda m, s: m * (1.0 - s),
    "the other way round": lambda m, s: (1 - s) * m,
    "less a copy of it": lambda m, s: m - m * s,
    "less the threshold": lambda m, s: m - s,
    "to below zero": lambda m, s: torch.where(s > 0, torch.full_like(m, -0.25), m),
    "times twice what did not fire": lambda m, s: m * (2.0 - 2.0 * s) * 0.5,
    "a power of what did not fire": lambda m, s: m * (1 - s) * (1 - s),
}


def spiking(reset):
    def forward(self, x):
        hidden = out = torch.zeros(1, dtype=x.dtype)
        count = 0.0
        for _ in range(STEPS):
            hidden = 0.9 * hidden + self.first(x)  # the same at every step, written in the loop
            fired = (hidden >= 0.5).to(x.dtype)
            out = 0.8 * out + self.second(fired)
            spikes = (out > 0.25).to(x.dtype)
            hidden, out = reset(hidden, fired), reset(out, spikes)
            count = count + spikes
        return count

    return forward


@pytest.mark.parametrize("width", [6, 7])
@pytest.mark.parametrize("name", RESETS)
def test_both_layers_are_stepped_through_time_as_the_model_says(name, width):
    torch.manual_seed(3)
    layers = {"first": linear(width), "second": linear(CLASSES, width)}
    model = Hand(spiking(RESETS[name]), **layers).double()
    inputs = torch.randn(21, INPUTS, generator=torch.Generator().manual_seed(0)).double()
    given = Problem(model, inputs, torch.arange(21) % CLASSES, F.cross_entropy)
    evaluator, _ = check_losses(given, name, LayerWise(1), torch.float64)
    assert set(evaluator.notes.values()) == {"fused"}
