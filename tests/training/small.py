"""A small problem every training test shares: two noisy clusters and a staircase network."""

import torch
from torch import nn

from hardstep import Batched, Biased, Full, Length, Momentum, PolyStep, RowWise, Settings, Simplex
from hardstep.nn import Staircase, build

SETTINGS = Settings(
    subspace=RowWise(rank=2),
    polytope=Simplex(4),
    rotation=Biased(),
    temperature=0.02,
    step_radius=Length(0.3),
    probe_radius=Length(2.0),
    rules=(Momentum(0.5),),
)
FULL = SETTINGS.changed(subspace=Full())


def examples(num=96):
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(num) % 2
    inputs = torch.randn(num, 3, generator=generator) + 2.0 * labels[:, None]
    return inputs, labels


def batches(num=96, size=32):
    inputs, labels = examples(num)
    return list(zip(inputs.split(size), labels.split(size), strict=True))


def model(seed=0):
    return build(lambda: nn.Sequential(nn.Linear(3, 4), Staircase(), nn.Linear(4, 2)), seed)


def optimizer(net, settings=SETTINGS, seed=0):
    """Evaluated in batches: models this small train faster than a kernel is compiled."""
    return PolyStep(net, settings, evaluator=Batched(), seed=seed)


def weights(net):
    return torch.cat([p.detach().reshape(-1) for p in net.parameters()])
