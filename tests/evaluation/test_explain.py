"""`PolyStep.explain`: which path each parameter takes, why not a faster one, and what it costs."""

import copy
import re
import time
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils._pytree import tree_flatten

from hardstep import PolyStep
from hardstep._durations import format_duration
from hardstep.errors import ConfigError
from hardstep.evaluation import Batched, Incremental, ModelObjective, OneByOne, Problem
from hardstep.evaluation.explain import OperationCounter
from hardstep.evaluation.memory import LiveBytes
from hardstep.evaluation.trace.record import record
from hardstep.geometry import Orthoplex
from hardstep.nn import LIF, SpikingMLP, build
from hardstep.subspaces import Full, LayerWise, RowWise, trainable

from .explained import (
    BATCH,
    CLASSES,
    HIDDEN,
    INPUTS,
    STEPS,
    Layers,
    a_batch,
    atan,
    branches,
    branches_by_value,
    explained,
    item,
    layers,
    parameters_of,
    relu,
)

# -- the same network, written differently ---------------------------------------------------


class Renamed(nn.Module):
    """The gallery's operations in its order, under names of its own."""

    def __init__(self):
        super().__init__()
        self.eyes, self.brain = nn.Linear(INPUTS, HIDDEN), nn.Linear(HIDDEN, CLASSES)

    def forward(self, picture):
        drive, states, total = self.eyes(picture), [None, None], None
        for _ in range(STEPS):
            fired, states[0] = self.cell(drive, states[0])
            fired, states[1] = self.cell(self.brain(fired), states[1])
            total = fired if total is None else total + fired
        return total

    @staticmethod
    def cell(drive, state):
        charge = drive if state is None else 0.95 * state + drive
        fired = (charge >= 1.0).to(charge.dtype)
        return fired, charge * (1.0 - fired)


class MyNeuron(LIF):
    """A subclass that adds nothing."""


class MyNetwork(SpikingMLP):
    """Another."""

    def __init__(self):
        super().__init__((INPUTS, HIDDEN, CLASSES), num_steps=STEPS, lif=MyNeuron())


def inlined(self, x):
    """Everything again at every step."""
    m, o, total = 0.0, 0.0, 0.0
    for _ in range(STEPS):
        m = 0.95 * m + self.fc(x)
        s = (m >= 1).float()
        m = m * (1 - s)
        o = 0.95 * o + self.out(s)
        t = (o >= 1).float()
        o = o * (1 - t)
        total = total + t
    return total


def in_place(self, x):
    current = self.fc(x)
    m, o = torch.zeros_like(current), torch.zeros(len(x), CLASSES)
    total = torch.zeros_like(o)
    for _ in range(STEPS):
        m.mul_(0.95).add_(current)
        s = (m >= 1).float()
        m.mul_(1 - s)
        o.mul_(0.95).add_(self.out(s))
        t = (o >= 1).float()
        o.mul_(1 - t)
        total += t
    return total


@pytest.fixture(
    scope="module", params=[RowWise(4), Full(), LayerWise(1)], ids=["rows", "full", "layers"]
)
def original(request):
    """A subspace, and the gallery's network explained in it."""
    gallery = build(lambda: SpikingMLP((INPUTS, HIDDEN, CLASSES), num_steps=STEPS), 0)
    return request.param, explained(gallery, request.param)


@pytest.mark.parametrize("copied", [Renamed, MyNetwork], ids=["renamed", "subclassed"])
def test_a_copy_under_other_names_has_the_same_table(copied, original):
    subspace, original = original
    other = explained(build(copied, 0), subspace)
    for one, same in zip(original.parameters, other.parameters, strict=True):
        assert replace(one, name="") == replace(same, name="")
    assert other.forward == original.forward
    assert other.memory == original.memory


@pytest.mark.slow
@pytest.mark.parametrize("function", [inlined, in_place])
def test_an_inlined_copy_takes_the_same_path_at_no_more_than_twice_the_cost(function, original):
    subspace, original = original
    other = explained(layers(function), subspace)
    for one, same in zip(original.parameters, other.parameters, strict=True):
        assert one.path.startswith("fused")
        assert (same.path, same.reason, same.probes) == (one.path, one.reason, one.probes)
        assert one.cost.operations / 2 < same.cost.operations < one.cost.operations * 2
        assert one.cost.nbytes / 2 < same.cost.nbytes < one.cost.nbytes * 2


# -- reasons ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("word", "function"),
    [
        ("cumsum", lambda self, x: self.out(self.fc(x).cumsum(dim=1))),
        ("atan", atan),
        ("native_layer_norm", lambda self, x: self.out(F.layer_norm(self.fc(x), (HIDDEN,)))),
        ("float16", lambda self, x: self.out(self.fc(x).half().float())),
        ("rounding_mode", lambda self, x: self.out(
            torch.div(self.fc(x), 0.3, rounding_mode="floor"))),
        ("pow", lambda self, x: self.out(self.fc(x).abs() ** 1.5)),
    ],
)  # fmt: skip
def test_an_operation_that_no_kernel_knows_is_named(word, function):
    explanation = explained(layers(function))
    for one in parameters_of(explanation, "fc"):
        assert one.path == "incremental"
        assert word in one.reason
    for one in parameters_of(explanation, "out"):  # it comes after, and is none of its business
        assert (one.path, one.reason) == ("fused", "")


EACH, ALONE = {"incremental"}, {"one by one"}
PLAIN = {"batched"} | ALONE


def robust(o, t):
    return F.huber_loss(o, F.one_hot(t, CLASSES).to(o.dtype))


@pytest.mark.parametrize(
    ("paths", "reason", "options"),
    [
        (EACH, "huber_loss", {"loss": robust}),
        (EACH, "^kernels are switched off$", {"evaluator": Incremental(fused=False)}),
        (PLAIN, "memory budget", {"evaluator": Incremental(memory_budget=1000)}),
        (ALONE, "Python|numpy", {"loss": item}),
        (ALONE, "Python|numpy", {"loss": lambda o, t: float(F.cross_entropy(o, t))}),
        (ALONE, "Python|numpy", {"loss": lambda o, t: float((o.numpy() ** 2).mean())}),
    ],
    ids=["unknown loss", "switched off", "too large", "item", "float", "numpy"],
)
def test_what_rules_out_a_path_for_every_tensor_is_given_as_the_reason(paths, reason, options):
    for one in explained(layers(relu), **options).parameters:
        assert one.path in paths
        assert re.search(reason, one.reason)


def test_a_tensor_that_is_not_used_is_said_not_to_matter():
    explanation = explained(layers(lambda self, x: self.out(x @ self.fc.weight.T)), Full())
    (one,) = parameters_of(explanation, "fc.bias")
    assert one.path == "incremental"
    assert "does not depend on it" in one.reason


@pytest.mark.parametrize("function", [branches, branches_by_value])
def test_a_branch_on_values_is_given_as_the_reason(function):
    explanation = explained(layers(function))
    for one in parameters_of(explanation, "fc"):
        assert one.path in ("batched", "one by one")
        assert "reaches Python" in one.reason
    assert {one.path for one in parameters_of(explanation, "out")} == {"fused"}


@pytest.mark.parametrize(
    ("dim", "subspace", "make"),
    [
        (2, RowWise(4), Incremental),
        (2, Full(), Incremental),
        (3, Full(), Incremental),
        (3, LayerWise(1), Incremental),
        (3, RowWise(4), lambda: Incremental(fused=False)),
        (2, LayerWise(1), lambda: Incremental(fused=False)),
        (3, Full(), Batched),
    ],
)
def test_what_is_explained_is_what_a_step_does(dim, subspace, make):
    """With d_p = 3, some particles of the full space straddle two rows, though not the first."""
    evaluator = make()
    opt = PolyStep(layers(relu), subspace=subspace, polytope=Orthoplex(dim), evaluator=evaluator)
    explanation = opt.explain(*a_batch(), F.cross_entropy)
    opt.step(*a_batch(), F.cross_entropy)
    paths = {one.name: one.path for one in explanation.parameters}
    if isinstance(evaluator, Batched):
        assert set(paths.values()) == {opt.evaluator.note}
    else:
        taken = {name: note for block, note in opt.evaluator.notes.items() for name in block}
        assert paths == taken


# -- numbers ---------------------------------------------------------------------------------


def test_a_forward_pass_is_counted_as_one_counts_on_paper():
    forward = explained(layers(relu)).forward
    products = 2 * BATCH * (INPUTS * HIDDEN + HIDDEN * CLASSES)
    elementwise = BATCH * HIDDEN + BATCH * CLASSES + 1  # ReLU, log-softmax, likelihood
    assert forward.operations == products + elementwise
    first = HIDDEN + BATCH * INPUTS + INPUTS * HIDDEN + BATCH * HIDDEN
    second = CLASSES + BATCH * HIDDEN + HIDDEN * CLASSES + BATCH * CLASSES
    scores = 2 * BATCH * CLASSES + BATCH * CLASSES + 2  # and the loss with its total weight
    assert forward.nbytes == 4 * (first + 2 * BATCH * HIDDEN + second + scores) + 8 * BATCH


def test_the_products_of_a_recurrent_layer_count_whatever_library_runs_it():
    layer = nn.LSTM(8, 16, batch_first=True)
    with torch.no_grad(), OperationCounter() as counter:
        layer(torch.zeros(6, 5, 8))
    products = 2 * 6 * 5 * (8 + 16) * 64
    assert products <= counter.cost.operations < 1.5 * products


@pytest.mark.parametrize("padded", [False, True])
def test_a_fused_encoder_layer_counts_as_its_parts_do(padded):
    layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True)
    mask = torch.arange(5).expand(3, 5) == 4 if padded else None
    counts = []
    for training in (False, True):  # in training torch runs it part by part
        with torch.no_grad(), OperationCounter() as counter:
            layer.train(training)(torch.zeros(3, 5, 16), src_key_padding_mask=mask)
        counts.append(counter.cost.operations)
    assert counts[0] >= 2 * 15 * (16 * 48 + 16 * 16 + 2 * 16 * 32 + 2 * 5 * 16)
    assert counts[0] == pytest.approx(counts[1], rel=0.1)


def test_attention_in_evaluation_is_counted():
    attention = nn.MultiheadAttention(16, 2, batch_first=True).eval()
    x = torch.zeros(3, 5, 16)
    with torch.no_grad(), OperationCounter() as counter:
        attention(x, x, x)
    assert counter.cost.operations >= 2 * 15 * (16 * 48 + 16 * 16 + 2 * 5 * 16)


def operations_of(explanation):
    return {one.name: one.cost.operations for one in explanation.parameters}


def test_probes_are_counted_as_one_counts_on_paper():
    """What every example takes, plus the directions' responses, which probes share."""
    dim, vertices = 2, 4
    after = 12 * CLASSES + 12  # log-softmax with its exponentials, the likelihood, the comparison

    costs = operations_of(explained(layers(relu), RowWise(4)))
    responses = 2 * INPUTS * BATCH * dim / vertices
    least = responses + BATCH * (2 * dim + 2 * CLASSES)  # a column, a rank-one update
    assert least < costs["fc.weight"] < least + BATCH * after

    costs = operations_of(explained(layers(relu), LayerWise(1)))
    responses = 2 * INPUTS * BATCH * HIDDEN * dim / vertices
    least = responses + BATCH * (2 * dim * HIDDEN + 2 * HIDDEN * CLASSES)  # a layer, a product
    assert least < costs["fc.weight"] < least + BATCH * (after + 4 * HIDDEN)


def test_probes_that_run_alone_cost_one_forward_pass_and_the_memory_a_step_takes():
    opt = PolyStep(layers(relu), subspace=RowWise(4), polytope=Orthoplex(2))
    explanation, proposal = opt.explain(*a_batch(), item), opt.propose()
    for one in explanation.parameters:
        assert one.cost.operations < 1.2 * explanation.forward.operations
    with LiveBytes() as live:
        opt.evaluate(proposal, *a_batch(), item)
    assert live.peak <= 1.5 * explanation.memory


def test_the_number_of_probes_is_that_of_the_step():
    few_at_once = {"num_probes": 3, "evaluator": Batched(tile=4)}
    opt = PolyStep(layers(relu), subspace=RowWise(4), polytope=Orthoplex(2), **few_at_once)
    explanation = opt.explain(*a_batch(), F.cross_entropy)
    blocks = {one.name.split(".")[0]: one.probes for one in explanation.parameters}
    assert sum(blocks.values()) == opt.evaluations_per_step


def test_the_table_shows_the_shares_and_nothing_is_printed(capsys):
    explanation = explained(layers(relu))
    assert capsys.readouterr().out == ""
    text = str(explanation)
    for one in explanation.parameters:
        (line, *_) = [line for line in text.splitlines() if line.startswith(one.name)]
        assert one.path in line
        assert f"1/{explanation.forward.operations / one.cost.operations:,.0f} " in line
    assert "26.3 k operations" in text
    assert f"memory of a step: {explanation.memory / 1e6:.1f} MB" in text
    assert "try this" not in text  # there is nothing to be faster


def test_the_table_fits_a_narrow_terminal():
    """Reasons are folded."""
    explanation = explained(layers(branches), loss=lambda o, t: 2 * o.sum().item())
    lines = str(explanation).splitlines()
    assert len(lines) > 12
    assert max(map(len, lines)) <= 80
    start = next(n for n, line in enumerate(lines) if "why not faster" in line)
    assert "try this" in lines[start]
    spoken = " ".join(" ".join(lines[start:]).split())
    assert "keep the value a tensor" in spoken
    assert "issue" not in spoken  # torch's are not the user's


def test_the_times_of_blocks_and_of_the_record_make_up_the_time_of_a_step():
    explanation = explained(layers(atan))
    blocks = {one.block: one for one in explanation.parameters}
    assert len(blocks) == 2 < len(explanation.parameters)
    spent = sum(one.seconds for one in blocks.values()) + explanation.recording
    assert explanation.seconds == pytest.approx(spent)
    slow, fast = blocks[0], blocks[1]
    said = " ".join(str(explanation).split())
    assert said[said.index("a step takes") :].startswith(
        f"a step takes about {format_duration(explanation.seconds)}, of which "
        f"incremental {format_duration(slow.seconds)}, fused {format_duration(fast.seconds)}, "
        f"the forward pass {format_duration(explanation.recording)}"
    )


SLOW = 0.001  # seconds of the processor


class Slow(Layers):
    """Each forward pass takes a while; `passes` counts them."""

    passes = 0

    def forward(self, x):
        type(self).passes += 1
        until = time.process_time() + SLOW
        while time.process_time() < until:
            pass
        return super().forward(x)


def test_the_time_of_a_step_is_extrapolated_from_what_is_measured(monkeypatch):
    monkeypatch.setattr(Slow, "passes", 0)
    opt = PolyStep(Slow(relu), subspace=RowWise(4), polytope=Orthoplex(2))
    explanation = opt.explain(*a_batch(), item)
    assert explanation.seconds >= SLOW * opt.evaluations_per_step
    assert Slow.passes < opt.evaluations_per_step


def test_tiles_that_take_long_are_cut_and_counted_for_what_they_are(monkeypatch):
    def measure(seconds):
        monkeypatch.setattr("hardstep.evaluation.explain.SECONDS", seconds)
        monkeypatch.setattr(Slow, "passes", 0)
        evaluator = Batched(tile=32)
        found = explained(build(lambda: Slow(relu), 0), loss=item, evaluator=evaluator)
        return found, Slow.passes

    (whole, many), (cut, few) = measure(1e9), measure(1e-9)
    assert few < many / 2
    assert operations_of(cut) == pytest.approx(operations_of(whole), rel=0.2)
    assert cut.memory == pytest.approx(whole.memory, rel=0.1)


@pytest.mark.parametrize(
    ("function", "subspace"),
    [
        (relu, RowWise(4)),
        (relu, Full()),
        (inlined, RowWise(4)),
        (inlined, LayerWise(1)),
        (atan, Full()),
        (atan, LayerWise(1)),
    ],
)
def test_memory_is_what_a_step_takes(function, subspace):
    model = layers(function)
    opt = PolyStep(model, subspace=subspace, polytope=Orthoplex(2))
    explanation = opt.explain(*a_batch(), F.cross_entropy)
    problem = Problem(model, *a_batch(), F.cross_entropy)
    with torch.no_grad():
        kept = record(problem, trainable(model), 0).nbytes
    assert explanation.memory > kept
    candidates = opt.candidates(opt.propose())
    with LiveBytes() as live:
        ModelObjective(problem, Incremental()).losses(candidates)
    # A step also keeps a few numbers per probe of all blocks.
    assert explanation.memory <= live.peak <= explanation.memory + 64 * len(candidates)


def test_memory_stays_within_the_budget_and_what_is_recorded():
    """Tables of a tile are bounded; more probes take no more."""
    budget = 1 << 20
    one, forty = (
        explained(layers(inlined), evaluator=Incremental(budget), num_probes=probes).memory
        for probes in (1, 40)
    )
    assert forty <= one + 4 * budget


# -- nothing changes -------------------------------------------------------------------------


def is_equal(one, other):
    """Whether two trees hold the same, bit for bit."""
    leaves, shape = tree_flatten(one)
    others, other_shape = tree_flatten(other)
    return shape == other_shape and all(
        torch.equal(a, b) if isinstance(a, torch.Tensor) else a == b
        for a, b in zip(leaves, others, strict=True)
    )


@pytest.mark.filterwarnings("ignore::hardstep.errors.SlowLossWarning")
@pytest.mark.parametrize(
    ("function", "subspace"), [(relu, RowWise(4)), (branches, Full()), (atan, LayerWise(1))]
)
def test_explaining_changes_nothing(function, subspace):
    def run(explain):
        opt = PolyStep(layers(function), subspace=subspace, polytope=Orthoplex(2), seed=3)
        opt.step(*a_batch(), F.cross_entropy)
        generator = torch.get_rng_state()
        before = copy.deepcopy((opt.state_dict(), opt.model.state_dict()))
        report = opt.report
        if explain:
            opt.explain(*a_batch(), F.cross_entropy)
        assert is_equal((opt.state_dict(), opt.model.state_dict()), before)
        assert torch.equal(torch.get_rng_state(), generator)
        assert opt.report is report
        assert all(parameter.grad is None for parameter in opt.model.parameters())
        losses = [opt.step(*a_batch(), F.cross_entropy) for _ in range(2)]
        return losses, opt.model.state_dict(), opt.state_dict(), opt.evaluations

    assert is_equal(run(False), run(True))


def test_what_cannot_be_explained_is_refused():
    with pytest.raises(ConfigError, match="explain needs a model, a batch and an evaluator"):
        explained(layers(relu), evaluator=OneByOne())
    with pytest.raises(ConfigError, match="needs a model"):
        explained({"weight": torch.zeros(3, 3)})
