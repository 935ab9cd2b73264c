"""Events through batch norm in training mode, where every example alters the statistics of all."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from hardstep.evaluation import Incremental, ModelObjective, OneByOne, Problem
from hardstep.nn import build
from hardstep.subspaces import RowWise

from .catalogue import candidates_for


class Sign(nn.Module):
    def forward(self, x):
        return torch.sign(x)


class Residual(nn.Module):
    """A branch with two normalizations beside the identity."""

    def __init__(self, channels):
        super().__init__()
        self.one, self.two = (nn.Conv2d(channels, channels, 3, padding=1) for _ in range(2))
        self.norms = nn.ModuleList(nn.BatchNorm2d(channels) for _ in range(2))

    def forward(self, x):
        hidden = torch.sign(self.norms[0](self.one(torch.sign(x))))
        return x + self.norms[1](self.two(hidden))


def signs(channels):
    return nn.Sequential(
        nn.Conv2d(1, channels, 3), nn.BatchNorm2d(channels), Sign(),
        nn.Conv2d(channels, channels, 3), nn.BatchNorm2d(channels), Sign(),
        nn.Flatten(), nn.Linear(channels * 16, 4),
    )  # fmt: skip


def pooled():
    """The first statistics are of planes in the order of windows."""
    return nn.Sequential(
        nn.Conv2d(1, 3, 3), nn.BatchNorm2d(3), nn.MaxPool2d(2), Sign(),
        nn.Conv2d(3, 5, 2, bias=False), nn.BatchNorm2d(5, affine=False), Sign(),
        nn.Flatten(), nn.Linear(20, 4),
    )  # fmt: skip


def mixed():
    """Statistics of pictures, then of single units, and none that are kept."""
    return nn.Sequential(
        nn.Conv2d(1, 6, 3), nn.BatchNorm2d(6, track_running_stats=False), Sign(),
        nn.Flatten(), nn.Linear(6 * 36, 20), nn.BatchNorm1d(20), Sign(), nn.Linear(20, 4),
    )  # fmt: skip


NETWORKS = {
    "three channels": lambda: signs(3),
    "sixteen channels": lambda: signs(16),
    "twenty channels": lambda: signs(20),
    "pooled": pooled,
    "mixed": mixed,
    "residual": lambda: nn.Sequential(
        nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), Residual(4), Residual(4),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 4),
    ),
}  # fmt: skip


def compare(name, dtype, monkeypatch, batch=6):
    monkeypatch.setattr("hardstep.evaluation.blocks.count_work", lambda *_: float("inf"))
    model = build(NETWORKS[name], 1).to(dtype)
    inputs = torch.randn(batch, 1, 8, 8, generator=torch.Generator().manual_seed(2), dtype=dtype)
    problem = Problem(model, inputs, torch.arange(batch) % 4, F.cross_entropy)
    candidates, evaluator = candidates_for(model, RowWise(1)), Incremental()
    plain = ModelObjective(problem, OneByOne()).losses(candidates)
    found = ModelObjective(problem, evaluator).losses(candidates)
    limit = 1e-10 if dtype is torch.float64 else 1e-5
    torch.testing.assert_close(found, plain, rtol=limit, atol=limit)
    return evaluator, found


@pytest.mark.parametrize("name", NETWORKS)
def test_losses_are_those_of_plain_forward_passes(name, monkeypatch):
    evaluator, _ = compare(name, torch.float64, monkeypatch)
    convolutions = [tier for names, tier in evaluator.notes.items() if names[0].startswith("0.")]
    assert set(convolutions) == {"events"}


def test_single_precision_is_exact_to_its_rounding(monkeypatch):
    compare("sixteen channels", torch.float32, monkeypatch)


def test_parameters_of_the_normalization_are_followed_too(monkeypatch):
    evaluator, _ = compare("sixteen channels", torch.float64, monkeypatch)
    assert evaluator.notes[("1.weight",)] == evaluator.notes[("1.bias",)] == "events"


def test_one_channel_of_equal_numbers_has_no_variance_to_divide_by(monkeypatch):
    """A dead channel: its variance is 0, and eps alone is in the root."""
    model = build(lambda: signs(3), 1).double()
    with torch.no_grad():
        model[0].weight[1].zero_()
    monkeypatch.setitem(NETWORKS, "dead", lambda: model)
    compare("dead", torch.float64, monkeypatch)
