"""The neuron's one pass over memory: torch's bits, and torch's operations for whoever looks."""

import math
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.autograd import forward_ad
from torch.func import grad, jvp, vmap
from torch.fx.experimental.proxy_tensor import make_fx

from hardstep.evaluation import Problem
from hardstep.evaluation.trace import layers
from hardstep.evaluation.trace.nodes import Later
from hardstep.evaluation.trace.record import Recorder, record
from hardstep.nn import LIF, SpikingMLP, build, lif_kernel
from hardstep.nn.spiking import Neuron

NUMBERS = st.sampled_from([0.0, -0.0, 1.0, -1.0, 0.1, 2.0, math.inf, -math.inf, math.nan, 1e-42])


def by_torch(lif, current, membrane=None):
    """The definition, operation by operation."""
    return Neuron.forward(lif, current, membrane)


def bits(tensor):
    """Which tell zeros apart, and one not-a-number from none."""
    integer = {4: torch.int32, 8: torch.int64}[tensor.element_size()]
    return torch.where(tensor.isnan(), -1, tensor.contiguous().view(integer))


def assert_same(found, expected):
    assert found is not None
    for ours, theirs in zip(found, expected, strict=True):
        assert ours.dtype == theirs.dtype
        assert torch.equal(bits(ours), bits(theirs))


def numbers(num, dtype, seed, special=()):
    values = torch.randn(num, generator=torch.Generator().manual_seed(seed), dtype=dtype)
    for place, value in enumerate(special):
        if num:
            values[place % num] = value
    return values


@settings(deadline=None)
@given(
    num=st.integers(0, 70),
    dtype=st.sampled_from([torch.float32, torch.float64]),
    decay=st.floats(0, 1),
    threshold=st.sampled_from([1.0, 0.1, 0.0, -0.5, 1, math.inf]),
    special=st.lists(NUMBERS, max_size=8),
    at_rest=st.booleans(),
)
def test_bits_are_those_of_torch(num, dtype, decay, threshold, special, at_rest):
    lif = LIF(decay, threshold)
    current = numbers(num, dtype, 0, [*special, threshold])
    membrane = None if at_rest else numbers(num, dtype, 1, special[::-1])
    found = lif_kernel.step(current, membrane, decay, threshold)
    assert_same(found, by_torch(lif, current, membrane))


def test_a_threshold_that_single_precision_rounds_is_met_by_its_neighbor():
    near = torch.tensor([0.1]).nextafter(torch.tensor([0.0]))
    current = torch.cat([near, torch.tensor([0.1])])
    spikes, _ = lif_kernel.step(current, None, 0.95, 0.1)
    assert spikes.tolist() == [0.0, 1.0] == (current >= 0.1).float().tolist()


def test_threads_share_large_steps(monkeypatch):
    current, membrane = numbers(10_001, torch.float32, 0), numbers(10_001, torch.float32, 1)
    monkeypatch.setattr(lif_kernel, "SEVERAL", 1_000)
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        found = lif_kernel.step(current, membrane, 0.9, 0.5)
    finally:
        torch.set_num_threads(before)
    assert_same(found, by_torch(LIF(0.9, 0.5), current, membrane))


@pytest.mark.parametrize("axes", [(0, 0), (1, 0), (2, 1)])
def test_vmap_is_a_larger_step(axes, monkeypatch):
    current = numbers(60, torch.float32, 0).reshape(3, 4, 5).movedim(0, axes[0])
    membrane = numbers(60, torch.float32, 1).reshape(3, 4, 5).movedim(0, axes[1])
    lif, calls = LIF(), []
    run = lif_kernel._run
    monkeypatch.setattr(lif_kernel, "_run", lambda *args: (calls.append(args), run(*args)))
    found = vmap(lif, in_dims=axes)(current, membrane)
    assert [args[0].shape for args in calls] == [(3, 4, 5)]
    pairs = zip(current.unbind(axes[0]), membrane.unbind(axes[1]), strict=True)
    each = [by_torch(lif, c, m) for c, m in pairs]
    assert_same(found, [torch.stack(part) for part in zip(*each, strict=True)])


def test_vmap_in_vmap_and_operands_that_do_not_vary():
    current, membrane = numbers(60, torch.float32, 0), numbers(60, torch.float32, 1)
    current, membrane = current.reshape(3, 4, 5), membrane.reshape(3, 4, 5)
    lif = LIF()
    assert_same(vmap(vmap(lif))(current, membrane), by_torch(lif, current, membrane))
    found = vmap(lif, in_dims=(0, None))(current, membrane[0])
    assert_same(found, by_torch(lif, current, membrane[0].expand(3, 4, 5)))
    # The outer axis belongs to the current, the inner to the membrane.
    found = vmap(lambda c: vmap(lambda m: lif(c, m))(membrane[0]))(current[:, 0])
    wanted = by_torch(lif, current[:, :1].expand(3, 4, 5), membrane[:1].expand(3, 4, 5))
    assert_same(found, wanted)


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated")  # torch's own jvp calls it
def test_gradients_are_those_of_torch():
    current, membrane = numbers(9, torch.float64, 0), numbers(9, torch.float64, 1)
    lif = LIF()

    def kept(membrane):
        return lif(current, membrane)[1].sum()

    def kept_by_torch(membrane):
        return by_torch(lif, current, membrane)[1].sum()

    wanted = grad(kept_by_torch)(membrane)
    assert wanted.abs().sum() > 1
    assert torch.equal(grad(kept)(membrane), wanted)
    leaf = membrane.clone().requires_grad_()
    kept(leaf).backward()
    assert torch.equal(leaf.grad, wanted)
    ones = torch.ones_like(membrane)
    assert jvp(kept, (membrane,), (ones,))[1] == wanted.sum()
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(membrane, ones)
        assert forward_ad.unpack_dual(kept(dual)).tangent == wanted.sum()


def test_who_records_operations_sees_torchs():
    current, membrane = numbers(9, torch.float32, 0), numbers(9, torch.float32, 1)
    graph = make_fx(LIF())(current, membrane)
    names = {str(node.target) for node in graph.graph.nodes}
    assert {"aten.ge.Scalar", "aten.rsub.Scalar"} <= names
    traced = torch.export.export(SpikingMLP((4, 3, 2)), (torch.rand(5, 4),))
    names = [str(node.target) for node in traced.graph.nodes]
    assert names.count("aten.ge.Scalar") == 2 * 15


class Eager(LIF):
    """Fires at half the threshold."""

    def fire(self, membrane):
        return super().fire(2 * membrane)


def test_a_subclass_fires_as_it_says():
    current = torch.tensor([0.4, 0.6, 1.2])
    assert Eager()(current)[0].tolist() == [0.0, 1.0, 1.0]


class Overwriting(nn.Module):
    """Writes to what the neuron gave it, and uses it again."""

    def __init__(self, lif):
        super().__init__()
        self.layer, self.lif = nn.Linear(5, 4), lif

    def forward(self, x):
        spikes, membrane = self.lif(self.layer(x))
        again, after = self.lif(spikes, membrane)
        membrane.mul_(0.5)
        return spikes + again.add_(1.0) + self.lif(after, membrane)[1]


class Repeating(nn.Module):
    """Takes some steps of a neuron twice, and has done a part of others before."""

    def __init__(self, ahead, zero=0.0):
        super().__init__()
        self.layer, self.lif = nn.Linear(5, 4), LIF(0.9, zero)
        self.ahead = ahead

    def forward(self, x):
        current = self.layer(x)
        early = [current >= 0.0, x * 0.9][: self.ahead]
        spikes, membrane = self.lif(current)
        again, _ = self.lif(current)
        later, after = self.lif(current, membrane)
        free, _ = self.lif(torch.ones_like(current), torch.zeros_like(current))
        late = membrane * 0.9 if self.ahead else membrane
        total = spikes + again + later + free + late + self.lif(current, after)[1]
        return total + sum(part.float().sum() for part in early)


def assert_same_record(ours, theirs):
    assert ours.signature == theirs.signature
    assert (ours.nbytes, ours.result, ours.sources) == (
        theirs.nbytes,
        theirs.result,
        theirs.sources,
    )
    assert ours.nodes == theirs.nodes
    for one, other in zip(ours.values, theirs.values, strict=True):
        assert one.dtype == other.dtype
        assert torch.equal(one, other)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(
    "make",
    [
        lambda: SpikingMLP((5, 6, 4), 3, LIF(0.9, 0.2)),
        lambda: Overwriting(LIF(1, 0)),
        lambda: Repeating(0),
        lambda: Repeating(1),
        lambda: Repeating(2),
        lambda: Repeating(0, -0.0),
    ],
)
def test_a_record_is_that_of_torch(make, dtype, monkeypatch):
    for seed in range(3):  # what the first one wrote down the others have again
        problem = Problem(
            build(make, seed).to(dtype), numbers(15, dtype, seed).reshape(3, 5), torch.arange(3),
            F.cross_entropy,
        )  # fmt: skip
        base = {name: value.detach() for name, value in problem.model.named_parameters()}
        with torch.no_grad(), monkeypatch.context() as patch:
            ours = record(problem, base, 0)
            missing = sum(isinstance(value, Later) for value in ours.values._kept)
            patch.setattr(lif_kernel, "find_recorder", lambda: None)
            theirs = record(problem, base, 0)
        assert missing > 0
        assert_same_record(ours, theirs)


def test_a_step_that_stands_in_the_last_record_is_not_written_again(monkeypatch):
    problem = Problem(
        build(lambda: SpikingMLP((5, 6, 4), 3), 0), numbers(15, torch.float32, 0).reshape(3, 5),
        torch.arange(3), F.cross_entropy,
    )  # fmt: skip
    base = {name: value.detach() for name, value in problem.model.named_parameters()}
    written = []
    write = Recorder.write
    monkeypatch.setattr(
        Recorder, "write", lambda *args, **kwargs: (written.append(args), write(*args, **kwargs))[1]
    )
    monkeypatch.setattr(layers, "_PASSAGES", {})
    with torch.no_grad():
        first = record(problem, base, 0)
        assert len(written) == 2 * (4 + 2 * 6)  # at rest there is no membrane to leak
        again = record(problem, base, 0)
        assert len(written) == 2 * (4 + 2 * 6)
        monkeypatch.setattr(layers, "MOST", 0)
        wider = replace(problem, inputs=problem.inputs.repeat(2, 1), target=torch.arange(6) % 4)
        record(wider, base, 0)
        assert len(layers._PASSAGES) == 1
    assert_same_record(again, first)


def unusual():
    values = numbers(12, torch.float32, 0).reshape(3, 4)
    yield "not contiguous", values.T, values.T, 0.9
    yield "half precision", values.half(), values.half(), 0.9
    yield "mixed precision", values, values.double(), 0.9
    yield "a membrane to broadcast", values, values[0], 0.9
    yield "a decay that is a tensor", values, values, torch.tensor(0.9)
    yield "a parameter", nn.Parameter(values), values, 0.9
    yield "negated lazily", torch._neg_view(values), values, 0.9


@pytest.mark.parametrize(("name", "current", "membrane", "decay"), list(unusual()))
def test_what_is_not_covered_is_left_to_torch(name, current, membrane, decay):
    assert lif_kernel.step(current, membrane, decay, 0.5) is None
    lif = LIF(0.9, 0.5)
    lif.decay = decay
    for ours, theirs in zip(lif(current, membrane), by_torch(lif, current, membrane), strict=True):
        assert torch.equal(ours, theirs)
