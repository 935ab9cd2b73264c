"""A record that does not fit: changes follow forward passes of which nothing is kept."""

import contextlib
import warnings

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from hardstep.evaluation import Incremental, ModelObjective, OneByOne, Problem
from hardstep.evaluation.incremental.lanes import Lane
from hardstep.evaluation.incremental.stream import follow
from hardstep.evaluation.incremental.survey import survey
from hardstep.evaluation.memory import LiveBytes
from hardstep.evaluation.ops import REGISTRY
from hardstep.evaluation.trace.nodes import Refused
from hardstep.evaluation.trace.record import record
from hardstep.nn import SpikingNet, build
from hardstep.subspaces import Full, LayerWise, RowWise

from .catalogue import MODELS, candidates_for, classify, made, problem_of, right_losses
from .random_models import draw
from .random_pictures import draw_problem
from .test_incremental import TRICKS, problem_with
from .test_unusual_models import CASES, INPUTS

SUBSPACES = [RowWise(2), Full(), LayerWise(1)]
REFUSED = {  # of the unusual models, by whatever reads a record
    "numbers put under a parameter",
    "a clipped parameter",
    "torch.tensor of losses",
    "torch.as_tensor of losses",
    "new_tensor of losses",
    "a split at a count",
}


def stream(problem, candidates, size=5):
    """Losses by tiles of this size, all beside one forward pass; not a number where refused."""
    lanes = [
        Lane(candidates, tile, REGISTRY) for span in candidates.spans() for tile in span.tiles(size)
    ]
    losses = torch.full((len(candidates),), torch.nan, dtype=torch.float64)
    with torch.no_grad():
        base = follow(problem, candidates, lanes, REGISTRY)
    for lane in lanes:
        if lane.losses is not None:
            losses[lane.tile.start : lane.tile.end] = lane.losses.double()
    return losses, base, {lane.reason for lane in lanes} - {""}


def check(problem, candidates, size=5, tolerance=1e-10):
    """Followed losses are those of plain forward passes; returns their share, and reasons."""
    with torch.no_grad():
        plain = OneByOne().losses(candidates, problem).double()
    losses, _, reasons = stream(problem, candidates, size)
    followed = ~losses.isnan() | plain.isnan()
    torch.testing.assert_close(
        losses[followed], plain[followed], rtol=tolerance, atol=tolerance, equal_nan=True
    )
    assert bool(followed.all()) == (not reasons)
    return float(followed.double().mean()), reasons


# -- the same losses -----------------------------------------------------------------------


@pytest.mark.parametrize("number", range(len(MODELS)), ids=list(MODELS))
def test_losses_along_a_forward_pass_are_those_of_plain_ones(number):
    name = list(MODELS)[number]
    problem = problem_of(name)
    for subspace in (RowWise(2), SUBSPACES[1 + number % 2]):
        share, reasons = check(problem, candidates_for(problem.model, subspace))
        if name != "attention":  # torch's own code writes into views
            assert share == 1, reasons


@pytest.mark.parametrize("name", ["mlp", "conv-pool", "spiking", "dropout", "batchnorm"])
def test_losses_in_single_precision(name):
    problem = problem_of(name, torch.float32)
    assert check(problem, candidates_for(problem.model, RowWise(2)), tolerance=1e-5)[0] == 1


@pytest.mark.parametrize("name", TRICKS)
def test_a_model_that_deceives_is_refused_or_right(name):
    problem = problem_with(TRICKS[name])
    candidates = candidates_for(problem.model, RowWise(2))
    if name.startswith("leaves"):
        with pytest.raises(Refused, match="leaves torch"):
            stream(problem, candidates)
        return
    share, reasons = check(problem, candidates)
    assert share > 0.4
    falls = {"branches", "uses_an_item", "writes_through_a_view", "writes_by_mask"}
    assert bool(reasons) == (name in falls)


@pytest.mark.parametrize("number", range(len(CASES)), ids=list(CASES))
@pytest.mark.filterwarnings("ignore:Using a target size")
def test_an_unusual_model_is_refused_or_right(number):
    name, (model, loss, target) = list(CASES.items())[number]
    torch.manual_seed(0)
    for parameter in model.parameters():
        nn.init.normal_(parameter)
    problem = Problem(model.double(), INPUTS, target, loss)
    for subspace in (RowWise(2), SUBSPACES[1 + number % 2]):
        candidates = candidates_for(model, subspace, scale=0.7)
        if name in REFUSED:
            with pytest.raises(Refused, match="leaves torch|reads the|splits where"):
                stream(problem, candidates)
        else:
            assert check(problem, candidates)[0] > 0.7


@pytest.mark.parametrize("seed", range(3, 9))
def test_random_networks_are_refused_or_right(seed):
    shares = []
    for problem in (draw(seed, torch.float64)[0], draw_problem(seed)):
        subspace = SUBSPACES[seed % 3]
        shares.append(check(problem, candidates_for(problem.model, subspace), size=7)[0])
    assert max(shares) == 1


def test_writing_into_a_parameter_is_refused_even_if_the_model_does_not_mind():
    def writes(self, inputs):
        with contextlib.suppress(Refused):
            self.a.weight.mul_(2.0)
        return self.b(self.a(inputs))

    problem = problem_with(writes)
    before = problem.model.a.weight.clone()
    losses, _, reasons = stream(problem, candidates_for(problem.model, RowWise(2)))
    assert losses.isnan().all()
    assert reasons == {"the forward pass writes into a parameter"}
    assert torch.equal(problem.model.a.weight, before)


def test_a_name_for_memory_that_no_operation_made_is_refused():
    def looks_behind(self, inputs):
        hidden = self.a(inputs)
        return self.b(hidden.data)

    problem = problem_with(looks_behind)
    share, _ = check(problem, candidates_for(problem.model, RowWise(2)))
    assert share > 0.4


def test_tiles_and_company_do_not_change_a_bit():
    problem = problem_of("spiking", torch.float32)
    candidates = candidates_for(problem.model, RowWise(2))
    few, many = (stream(problem, candidates, size)[0] for size in (2, 1000))
    assert torch.equal(few, many)
    lanes = [Lane(candidates, span, REGISTRY) for span in candidates.spans()]
    for lane in lanes:  # each beside a forward pass of its own
        with torch.no_grad():
            follow(problem, candidates, [lane], REGISTRY)
    assert torch.equal(torch.cat([lane.losses for lane in lanes]).double(), many)


def test_a_candidate_that_changes_nothing_takes_next_to_no_operations():
    problem = problem_of("quantized")
    candidates = candidates_for(problem.model, RowWise(2), scale=0.0)
    lanes = [Lane(candidates, span, REGISTRY) for span in candidates.spans()]
    with torch.no_grad():
        base = follow(problem, candidates, lanes, REGISTRY)
        reach = survey(problem, candidates)
    for lane in lanes[:-1]:  # the last layer has nothing behind it
        assert torch.equal(lane.losses, base.expand(lane.num))
        assert lane.work / lane.num < 0.6 * reach.work[lane.tile.block]


# -- chosen by the evaluator ---------------------------------------------------------------


class Timed(nn.Module):
    """Spiking layers; the loop over time is inside of each, so that values are (time, …)."""

    def __init__(self, num_steps):
        super().__init__()
        self.num_steps = num_steps
        sizes = [(6, 32), *[(32, 32)] * 5, (32, 8), (8, 3)]
        self.layers = nn.ModuleList(nn.Linear(*size) for size in sizes)

    def forward(self, inputs):
        spikes = inputs.expand(self.num_steps, *inputs.shape)
        for layer in self.layers:
            spikes = self._fire(layer(spikes))
        return spikes.sum(0)

    @staticmethod
    def _fire(currents):
        membrane, fired = torch.zeros_like(currents[0]), []
        for current in currents:
            membrane = membrane.mul_(0.9).add_(current)
            spikes = (membrane >= 0.5).to(current.dtype)
            membrane = membrane * (1 - spikes)
            fired.append(spikes)
        return torch.stack(fired)


class Residual(nn.Module):
    """Every layer's input is added to its output, with dropout in between."""

    def __init__(self, depth):
        super().__init__()
        self.first, self.last = nn.Linear(6, 16), nn.Linear(16, 3)
        self.layers = nn.ModuleList(nn.Linear(16, 16) for _ in range(depth))

    def forward(self, inputs):
        hidden = self.first(inputs)
        for layer in self.layers:
            hidden = hidden + F.dropout(torch.round(torch.tanh(layer(hidden)) * 4) / 4, 0.2)
        return self.last(hidden)


def deep(depth):
    """A chain of layers with steps between them, in place."""
    layers = [nn.Linear(6, 16)]
    for _ in range(depth):
        layers += [nn.ReLU(inplace=True), nn.Linear(16, 16)]
    return nn.Sequential(*layers, nn.Linear(16, 3))


def spiking(num_steps):
    """Convolutions; the loop over time is outside of the layers."""
    first = nn.Conv2d(1, 4, 3, padding=1)
    second = nn.Sequential(nn.MaxPool2d(2), nn.Conv2d(4, 8, 3, padding=1))
    return SpikingNet([first, second, nn.Sequential(nn.Flatten(), nn.Linear(128, 3))], num_steps)


# How to make one, the shape of an example, and the part of its record that the budget holds.
NETWORKS = {
    "time outside": (lambda: spiking(14), (1, 8, 8), 0.4),
    "time inside": (lambda: Timed(8), (6,), 0.6),
    "deep": (lambda: deep(20), (6,), 0.5),
    "residual": (lambda: Residual(12), (6,), 0.3),
}


def cut_problem(name):
    """A problem with weights that make it spike, and a budget that its record exceeds."""
    factory, shape, part = NETWORKS[name]
    problem = classify(made(factory), shape, torch.float64)
    with torch.no_grad():
        for parameter in problem.model.parameters():
            parameter.mul_(2.0 if name.startswith("time") else 1.0)
        base = dict(problem.model.named_parameters())
        whole = record(problem, {n: t.detach() for n, t in base.items()}, 7).nbytes
    return problem, int(part * whole)


def some(problem, num=10):
    """Probes of particles all over the blocks."""
    everyone = len(candidates_for(problem.model, RowWise(2)).asked)
    asked = sorted({n * (everyone - 1) // (num - 1) for n in range(num)})
    return candidates_for(problem.model, RowWise(2), asked=asked)


@pytest.mark.parametrize("name", NETWORKS)
def test_a_record_that_does_not_fit_is_cut_within_the_budget(name):
    problem, budget = cut_problem(name)
    candidates, evaluator = some(problem), Incremental(memory_budget=budget)
    losses = right_losses(candidates, problem, evaluator)
    assert losses.unique().numel() > 5
    assert "streamed" in evaluator.notes.values()
    assert "cut: changes follow the forward pass" in evaluator.note
    assert "a larger memory_budget" in evaluator.note
    for known in (evaluator, Incremental(memory_budget=budget)):
        with LiveBytes() as live:
            again = ModelObjective(problem, known).losses(candidates)
        assert torch.equal(again, losses)
        assert live.peak < 1.1 * budget


def test_what_whole_forward_passes_do_in_less_is_left_to_them():
    """The first layer of a deep smooth network changes everything behind it."""
    layers = [nn.Linear(6, 32), nn.Tanh()]
    for _ in range(12):
        layers += [nn.Linear(32, 32), nn.Tanh()]
    model = build(lambda: nn.Sequential(*layers, nn.Linear(32, 3)), 0)
    problem = classify(model, (6,), torch.float64)
    candidates = some(problem, 60)
    evaluator = Incremental(memory_budget=30_000)
    right_losses(candidates, problem, evaluator)
    notes = [evaluator.notes[block.names] for block in candidates.subspace.blocks]
    assert notes[0] == "a candidate changes so much that whole forward passes take less"
    assert notes[-1] == notes[-2] == "streamed"
    assert "whole forward passes for" in evaluator.note


def test_the_table_says_that_the_record_was_cut():
    problem, budget = cut_problem("time outside")
    candidates = some(problem)
    explanation = Incremental(memory_budget=budget).explain(candidates, problem)
    cut = [one for one in explanation.parameters if one.path == "streamed"]
    assert cut
    assert all("a larger memory_budget" in one.reason for one in cut)
    assert explanation.memory < 1.1 * budget


def test_wrong_losses_are_found_out(monkeypatch):
    right = Lane.carry

    def spoilt(lane, node, held, base):
        found = right(lane, node, held, base)
        if node.name == "nll_loss_forward":
            found = {i: one._replace(change=type(one.change)(one.change.values + 0.1))
                     for i, one in found.items()}  # fmt: skip
        return found

    monkeypatch.setattr(Lane, "carry", spoilt)
    problem, budget = cut_problem("time outside")
    candidates = some(problem, 6)
    with pytest.warns(RuntimeWarning, match="streamed evaluation of .* defect"):
        right_losses(candidates, problem, evaluator := Incremental(memory_budget=budget))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        right_losses(candidates, problem, evaluator)
    assert any("a wrong streamed loss" in note for note in evaluator.notes.values())


@pytest.mark.parametrize("height", [1.0, 700.0], ids=["finite", "infinite"])
def test_one_changed_channel_passes_a_convolution_as_a_difference(height):
    class Network(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = nn.Conv2d(1, 5, 3), nn.Conv2d(5, 4, 3, stride=2, padding=1)

        def forward(self, inputs):
            hidden = torch.exp(height * self.first(inputs))
            return torch.sigmoid(self.second(hidden)).flatten(1)[:, :3]

    problem = classify(made(Network), (1, 8, 8), torch.float64)
    candidates = candidates_for(problem.model, RowWise(2), scale=2.0)
    with torch.no_grad():
        base = problem.model(problem.inputs)
        plain = OneByOne().losses(candidates, problem)
        work = survey(problem, candidates).work[0]
        lane = Lane(candidates, next(candidates.spans()), REGISTRY)
        follow(problem, candidates, [lane], REGISTRY)
    assert bool(base.isfinite().all()) == (height == 1)
    assert plain.unique().numel() > 10
    own = plain[: lane.num]
    torch.testing.assert_close(lane.losses, own, rtol=1e-10, atol=1e-10, equal_nan=True)
    if height == 1:
        assert lane.work / lane.num < 0.3 * work  # of five channels one goes through
