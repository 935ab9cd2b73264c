"""Convolutional networks built to deceive, and odd batches, get the losses of plain passes."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hardstep.evaluation import Incremental, ModelObjective, OneByOne, Problem
from hardstep.nn import build
from hardstep.subspaces import RowWise

from .catalogue import candidates_for
from .event_networks import NETWORKS, PICTURE, Step, quantize, sign

EXACT = 1e-10


@pytest.fixture(autouse=True)
def always(monkeypatch):
    """Small networks are followed even where nearly all of them changes."""
    monkeypatch.setattr("hardstep.evaluation.blocks.count_work", lambda *_: float("inf"))


class Twice(nn.Module):
    """Two convolutions, of which a subclass says how they are used."""

    def __init__(self, readout: int = 3) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(1, 4, 3), nn.Conv2d(4, 3, 2)
        self.readout = nn.Linear(readout, 4)

    def fire(self, inputs: Tensor) -> Tensor:
        return (self.first(inputs) > 0.1).to(inputs.dtype)


class WritesParts(Twice):
    """Into channels, rows and single numbers of what convolutions return."""

    def forward(self, inputs: Tensor) -> Tensor:
        found = self.first(inputs)
        found[:, 1] = found[:, 0] * 0.5
        found[:, :, 0].clamp_(min=0)
        found = self.second(sign(found))
        found[found < 0] = 0
        return self.readout(found.mean((2, 3)))


class WritesLater(Twice):
    """Into what a convolution returned, after another value was computed from it."""

    def forward(self, inputs: Tensor) -> Tensor:
        found = self.first(inputs)
        before = sign(found)
        found.mul_(0.5).add_(before)
        return self.readout(self.second(sign(found) + before).mean((2, 3)))


class Remembers(Twice):
    """Statistics in buffers, updated in every pass and read in the same."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(4))
        self.register_buffer("seen", torch.zeros((), dtype=torch.long))

    def forward(self, inputs: Tensor) -> Tensor:
        count = torch.zeros((), dtype=inputs.dtype)
        for _ in range(3):
            found = self.first(inputs)
            self.mean.mul_(0.5).add_(0.5 * found.mean((0, 2, 3)))
            self.seen += 1
            spikes = (found > self.mean[None, :, None, None]).to(inputs.dtype)
            count = count + self.second(spikes * self.seen).mean((2, 3))
        return self.readout(count)


class RemembersInputs(Twice):
    """Statistics of what no candidate changes."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(()))

    def forward(self, inputs: Tensor) -> Tensor:
        self.mean = 0.9 * self.mean + 0.1 * inputs.mean()
        return self.readout(self.second(self.fire(inputs - self.mean)).mean((2, 3)))


class Chooses(Twice):
    """As many numbers as fired."""

    def forward(self, inputs: Tensor) -> Tensor:
        fired = self.fire(inputs)
        kept = self.second(fired)
        strong = kept[kept > 0]
        return self.readout(kept.mean((2, 3))) * (strong.numel() + strong.sum())


class Stops(Twice):
    """As many time steps as the pictures ask for, and until all is quiet."""

    def forward(self, inputs: Tensor) -> Tensor:
        membrane = torch.zeros((), dtype=inputs.dtype)
        for _ in range(2 + int(inputs[:, 0, 0, 0].sum() > 0)):
            membrane = 0.8 * membrane + self.first(inputs)
            if not (membrane > 0.1).any():
                break
        return self.readout(self.second(sign(membrane)).mean((2, 3)))


class AddsItsWeights(Twice):
    """The sums of its own weights are part of what it returns."""

    def forward(self, inputs: Tensor) -> Tensor:
        found = self.second(self.fire(inputs)).mean((2, 3))
        return self.readout(found) + self.second.weight.abs().sum() * self.first.weight.sum()


class ScalesItsOutput(Twice):
    """Signs of weights, and their mean absolute values on what the convolution returns."""

    def forward(self, inputs: Tensor) -> Tensor:
        for layer in (self.first, self.second):
            scale = layer.weight.abs().mean((1, 2, 3))
            found = F.conv2d(inputs, sign(layer.weight), layer.bias)
            inputs = quantize(found * scale[None, :, None, None])
        return self.readout(inputs.mean((2, 3)))


class ScalesItsRows(Twice):
    """Weights rounded to multiples of a scale of each filter, and standardized ones."""

    def forward(self, inputs: Tensor) -> Tensor:
        weight = self.first.weight
        scale = weight.abs().amax((1, 2, 3), keepdim=True) / 7
        found = quantize(F.conv2d(inputs, (weight / scale).round() * scale, self.first.bias))
        weight = self.second.weight
        mean, std = weight.mean((1, 2, 3), keepdim=True), weight.std((1, 2, 3), keepdim=True)
        found = sign(F.conv2d(found, (weight - mean) / std, self.second.bias))
        return self.readout(found.mean((2, 3)))


class SharesParts(Twice):
    """The filters of one weight, taken apart and used in two places."""

    def forward(self, inputs: Tensor) -> Tensor:
        one, two = self.first.weight.chunk(2)
        found = torch.cat([F.conv2d(inputs, two), sign(F.conv2d(inputs, one))], 1)
        return self.readout(self.second(sign(found)).mean((2, 3)))


class Tied(Twice):
    """A convolution and its transpose, each behind a sign, with one weight."""

    def __init__(self) -> None:
        super().__init__(1)

    def forward(self, inputs: Tensor) -> Tensor:
        found = sign(F.conv_transpose2d(sign(self.first(inputs)), self.first.weight))
        return self.readout(F.conv2d(sign(found), self.first.weight).sum(1, True).mean((2, 3)))


DECEIVING = [
    WritesParts, WritesLater, Remembers, RemembersInputs, Chooses, Stops, AddsItsWeights,
    ScalesItsOutput, ScalesItsRows, SharesParts, Tied,
]  # fmt: skip
# Which of them the first convolution must be followed through as events.
FOLLOWED = {"WritesLater", "Remembers", "RemembersInputs", "ScalesItsRows"}


def pose(make, shape=PICTURE, dtype=torch.float64, batch=5) -> Problem:
    model = build(make, 3).to(dtype).eval()
    generator = torch.Generator().manual_seed(1)
    inputs = torch.randn(batch, *shape, generator=generator, dtype=torch.float64).to(dtype)
    return Problem(model, inputs, torch.arange(batch) % 4, F.cross_entropy)


def compare(problem: Problem, evaluator=None, scale=0.5) -> Incremental:
    """Check all losses against plain forward passes."""
    evaluator = evaluator or Incremental()
    candidates = candidates_for(problem.model, RowWise(1), scale=scale)
    plain = ModelObjective(problem, OneByOne()).losses(candidates)
    found = ModelObjective(problem, evaluator).losses(candidates)
    torch.testing.assert_close(found, plain, rtol=EXACT, atol=EXACT, equal_nan=True)
    return evaluator


def tier_of(evaluator: Incremental, parameter: str) -> str:
    return next(tier for names, tier in evaluator.notes.items() if parameter in names)


@pytest.mark.parametrize("make", DECEIVING, ids=lambda make: make.__name__)
def test_networks_built_to_deceive(make):
    problem = pose(make)
    before = {name: value.clone() for name, value in problem.model.named_buffers()}
    evaluator = compare(problem)
    for name, value in problem.model.named_buffers():
        assert torch.equal(value, before[name])
    assert (tier_of(evaluator, "first.weight") == "events") >= (make.__name__ in FOLLOWED)


POOLS = {
    "maxima": lambda h: F.max_pool2d(h, 3, 2, padding=1),
    "dilated": lambda h: F.max_pool2d(h, 2, 1, dilation=2),
    "rounded up": lambda h: F.max_pool2d(h, 3, 2, ceil_mode=True),
    "means": lambda h: F.avg_pool2d(h, 3, 2, padding=1),
    "means without the margin": lambda h: F.avg_pool2d(
        h, 3, 2, padding=1, ceil_mode=True, count_include_pad=False
    ),
    "sums": lambda h: F.avg_pool2d(h, 2, divisor_override=1),
    "maxima to a size": lambda h: F.adaptive_max_pool2d(h, (3, 2)),
    "means to a size": lambda h: F.adaptive_avg_pool2d(h, (2, 3)),
    "places": lambda h: F.max_pool2d(h, 2, return_indices=True)[1].to(h.dtype),
    "powers": lambda h: F.lp_pool2d(h, 2, 2),
    "maxima in a line": lambda h: F.max_pool1d(h.flatten(2), 3, 2, padding=1).unsqueeze(2),
    "means in a line": lambda h: F.avg_pool1d(h.flatten(2), 3, ceil_mode=True).unsqueeze(2),
    "maxima to a size in a line": lambda h: F.adaptive_max_pool1d(h.flatten(2), 5).unsqueeze(2),
    "means to a size in a line": lambda h: F.adaptive_avg_pool1d(h.flatten(2), 5).unsqueeze(2),
    "maxima in space": lambda h: F.max_pool3d(h.unsqueeze(2), (1, 2, 3), ceil_mode=True)[:, :, 0],
    "means in space": lambda h: F.avg_pool3d(h.unsqueeze(2), (1, 2, 2), padding=(0, 1, 1))[:, :, 0],
    "maxima to a size in space": lambda h: F.adaptive_max_pool3d(h.unsqueeze(2), (1, 3, 2))[
        :, :, 0
    ],
    "means to a size in space": lambda h: F.adaptive_avg_pool3d(h.unsqueeze(2), (2, 2, 3))[:, :, 1],
}


class Pooled(Twice):
    """A pool between two convolutions, and behind the second."""

    def __init__(self, pool) -> None:
        super().__init__()
        self.pool = pool
        self.second = nn.Conv2d(4, 3, 3, padding=1)

    def forward(self, inputs: Tensor) -> Tensor:
        found = self.second(self.pool(quantize(self.first(inputs), 0.2)))
        return self.readout(self.pool(F.pad(sign(found), (2, 2, 2, 2))).mean((2, 3)))


@pytest.mark.parametrize("fused", [True, False], ids=["kernels", "columns"])
@pytest.mark.parametrize("name", POOLS)
def test_pools(name, fused):
    evaluator = compare(pose(lambda: Pooled(POOLS[name]), (1, 7, 7)), Incremental(fused=fused))
    assert set(evaluator.notes.values()) <= {"fused", "events", "gathered", "incremental"}


def convolve(groups: int, channels: int):
    """A convolution without a bias, of fixed weights."""
    weight = torch.linspace(-1, 1, channels * 4 // groups * 4).sin().double()
    return lambda h: F.conv2d(h, weight.reshape(channels, 4 // groups, 2, 2), groups=groups)


SUMS = {name: pool for name, pool in POOLS.items() if name.startswith(("means", "sums"))} | {
    "mean of pixels": lambda h: h.mean((2, 3), keepdim=True),
    "sum of channels": lambda h: h.sum(1, keepdim=True),
    "convolution": convolve(1, 3),
    "convolution in groups": convolve(2, 6),
    "filter per channel": convolve(4, 4),
    "product": lambda h: (h.flatten(1) @ h.new_ones(100, 3).cumsum(0).sin()).reshape(-1, 3, 1, 1),
}


class Vanishing(Twice):
    """Whether sums of numbers that are zero or irrational are above zero."""

    def __init__(self, add) -> None:
        super().__init__(4)
        self.add = add

    def forward(self, inputs: Tensor) -> Tensor:
        some = self.add(F.relu(self.first(inputs) - 0.5)) > 0
        return self.readout(F.adaptive_max_pool2d(some.to(inputs.dtype), 2).sum(1).flatten(1))


@pytest.mark.parametrize("name", SUMS)
def test_sums_whose_terms_vanish(name):
    problem = pose(lambda: Vanishing(SUMS[name]), (1, 7, 7), batch=16)
    evaluator = compare(problem, scale=3.0)
    assert tier_of(evaluator, "first.weight") == "events"


class Classes(Twice):
    """Shares of classes, some of them impossible, mixed by weights."""

    def __init__(self, number: int, share) -> None:
        super().__init__()
        self.readout, self.share = nn.Linear(3, number), share
        self.register_buffer("mixed", torch.linspace(-1, 1, 4 * number).reshape(number, 4))

    def forward(self, inputs: Tensor) -> Tensor:
        scores = 5 * self.readout(sign(self.second(self.fire(inputs))).mean((2, 3)))
        scores = torch.where(scores > 4, -torch.inf, scores)
        return self.share(scores, 1).clamp(min=-50) @ self.mixed


@pytest.mark.parametrize("share", [torch.softmax, torch.log_softmax])
@pytest.mark.parametrize("number", [4, 20, 150])
def test_softmax_of_classes(number, share):
    evaluator = compare(pose(lambda: Classes(number, share)))
    assert tier_of(evaluator, "first.weight") == "events"


CHECKED = ("spiking", "binary", "separable", "wide")


@pytest.mark.parametrize("name", CHECKED)
def test_a_probe_too_small_to_alter_anything_gives_the_base_loss(name):
    make, shape, _ = NETWORKS[name]
    problem = pose(make, shape)
    candidates = candidates_for(problem.model, RowWise(1), scale=1e-13)
    found = ModelObjective(problem, Incremental()).losses(candidates)
    base = problem.loss(candidates.base, problem.buffers()).detach()
    torch.testing.assert_close(found, base.expand_as(found), rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("name", CHECKED)
def test_a_probe_that_alters_everything(name):
    make, shape, _ = NETWORKS[name]
    compare(pose(make, shape), scale=1e3)


def test_batches_of_other_sizes_follow_each_other():
    make, shape, _ = NETWORKS["spiking"]
    evaluator, model = Incremental(), build(make, 3).double()
    for batch in (5, 3, 1, 8, 5):
        inputs = torch.randn(batch, *shape, generator=torch.Generator().manual_seed(batch)).double()
        compare(Problem(model, inputs, torch.arange(batch) % 4, F.cross_entropy), evaluator)
        assert tier_of(evaluator, "first.weight") == "events"


class Divides(Twice):
    """Infinite or no number at all where nothing fires."""

    def __init__(self, numerator: float) -> None:
        super().__init__()
        self.numerator = numerator

    def forward(self, inputs: Tensor) -> Tensor:
        fired = self.fire(inputs)
        found = self.second(fired + 1e-3 * (self.numerator * fired[:, :1] / fired[:, :1]).isnan())
        return self.readout(F.max_pool2d(found / fired[:, :3, 1:, 1:], 2).clamp(-3, 3).mean((2, 3)))


@pytest.mark.parametrize("numerator", [0.0, 1.0])
def test_a_base_with_numbers_that_are_not_finite(numerator):
    compare(pose(lambda: Divides(numerator)))


@pytest.mark.parametrize("name", CHECKED)
def test_channels_last(name):
    make, shape, followed = NETWORKS[name]
    problem = pose(make, shape)
    model = problem.model.to(memory_format=torch.channels_last)
    inputs = problem.inputs.to(memory_format=torch.channels_last)
    evaluator = compare(Problem(model, inputs, problem.target, problem.loss_fn))
    assert tier_of(evaluator, followed.split()[0]) == "events"


@pytest.mark.parametrize("name", CHECKED)
def test_inputs_that_are_not_contiguous(name):
    make, shape, followed = NETWORKS[name]
    problem = pose(make, (*shape[:-1], 2 * shape[-1]))
    turned = problem.inputs[..., ::2].transpose(2, 3)
    assert not turned.is_contiguous()
    evaluator = compare(Problem(problem.model, turned, problem.target, problem.loss_fn))
    assert tier_of(evaluator, followed.split()[0]) == "events"


class Rounded(nn.Module):
    """Steps between convolutions, for numbers of any precision."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(1, 4, 3), Step(), nn.Conv2d(4, 4, 2), nn.MaxPool2d(2), Step(),
            nn.Flatten(), nn.Linear(4, 4),
        )  # fmt: skip

    def forward(self, inputs: Tensor) -> Tensor:
        return self.layers(inputs)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_evaluated_in_batches(dtype):
    """Two units in the last place, of losses between one and two."""
    problem, evaluator = pose(Rounded, dtype=dtype), Incremental()
    candidates = candidates_for(problem.model, RowWise(1))
    plain = ModelObjective(problem, OneByOne()).losses(candidates).double()
    found = ModelObjective(problem, evaluator).losses(candidates).double()
    limit = 2 * torch.finfo(dtype).eps
    assert plain.std() > 5 * limit
    torch.testing.assert_close(found, plain, rtol=limit, atol=0.0)
    assert set(evaluator.notes.values()) == {"in half precision, the order of a sum shows"}
    assert evaluator.path == "batched"
