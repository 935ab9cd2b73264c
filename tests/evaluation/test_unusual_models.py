"""Models that are written in ways the rules were not made for get the losses of plain passes.

Each was once given wrong losses, or an error, by a path that took it for something else.
"""

import os
import signal

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hardstep._threads import share_out
from hardstep.evaluation import Incremental, ModelObjective, OneByOne, Problem
from hardstep.subspaces import Full, LayerWise, RowWise
from tests.evaluation.catalogue import candidates_for

BATCH = 5
LABELS = torch.tensor([0, 1, 2, 0, 1])
SUBSPACES = {"rows": RowWise(2), "full": Full(), "layers": LayerWise(1)}


def numbers(*shape: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


INPUTS = numbers(BATCH, 6)


class Model(nn.Module):
    """Layers a (6, 6), b (6, 3), c (6, 3), a weight w and a vector v, used as a function says."""

    def __init__(self, function, **state):
        super().__init__()
        self.a, self.b, self.c = nn.Linear(6, 6), nn.Linear(6, 3), nn.Linear(6, 3)
        self.w, self.v = nn.Parameter(torch.randn(6, 6)), nn.Parameter(torch.randn(6))
        self.function = function
        for name, value in state.items():
            setattr(self, name, value)

    def forward(self, inputs):
        return self.function(self, inputs)


class DataBinary(nn.Linear):
    """A binary layer as BinaryNet is written: it puts other numbers under the parameter."""

    def forward(self, inputs):
        if not hasattr(self.weight, "org"):
            self.weight.org = self.weight.data.clone()
        self.weight.data = self.weight.org.sign()
        return F.linear(inputs, self.weight, self.bias)


class DataClipped(nn.Linear):
    """Clips its weights under way."""

    def forward(self, inputs):
        self.weight.data = self.weight.data.clamp(-0.2, 0.2)
        return F.linear(inputs, self.weight, self.bias)


def hidden(m, x):
    return torch.relu(m.a(x))


def twice_noisy(h):
    return (h + torch.rand_like(h)) * (h + torch.rand_like(h))


def remembers(m, x):
    m.membrane.mul_(0.5).add_(1.0)
    return m.b(torch.relu(m.a(x) * m.membrane))


def mean_of_list(kind):
    def loss(output, target):
        each = [F.cross_entropy(output[i : i + 1], target[i : i + 1]) for i in range(BATCH)]
        return kind(output, each).mean()

    return loss


def counted(count):
    def loss(output, target):
        return F.cross_entropy(output, target) + 0.1 * count(output, target)

    return loss


def weighted(output, target):
    return (output * target).sum()


def both(output, target):
    others = torch.arange(len(output[1])) % 3
    return F.cross_entropy(output[0], target) + F.cross_entropy(output[1], others)


def split_at_wrong(output, target):
    place = (output.argmax(1) != target).sum().clamp(1, 4).reshape(1).cpu()
    first, second = torch.tensor_split(output, place)
    return first.sum() - second.sum()


CE = F.cross_entropy
LARGEST = torch.iinfo(torch.int64).max
OTHERS, MANY, ANCHOR = numbers(7, 6, seed=4), numbers(20, 6, seed=5), numbers(1, 6, seed=9)
# A model, its loss, and its target.
CASES = {
    "a loss that broadcasts": (
        Model(lambda m, x: hidden(m, x).sum(1)), F.mse_loss, numbers(BATCH, 1, seed=4)),
    "expand with an axis in front": (
        Model(lambda m, x: hidden(m, x).sum(1).expand(BATCH, BATCH)), weighted,
        numbers(BATCH, BATCH, seed=3)),
    "expand of a layer": (
        Model(lambda m, x: hidden(m, x).expand(BATCH, BATCH, 6)), weighted,
        numbers(BATCH, BATCH, 6, seed=3)),
    "numbers put under a parameter": (
        nn.Sequential(DataBinary(6, 6), nn.ReLU(), nn.Linear(6, 3)), CE, LABELS),
    "a clipped parameter": (
        nn.Sequential(DataClipped(6, 6), nn.ReLU(), nn.Linear(6, 3)), CE, LABELS),
    "torch.tensor of losses": (
        Model(lambda m, x: m.b(x)), mean_of_list(lambda o, each: torch.tensor(each)), LABELS),
    "torch.as_tensor of losses": (
        Model(lambda m, x: m.b(x)), mean_of_list(lambda o, each: torch.as_tensor(each)), LABELS),
    "new_tensor of losses": (
        Model(lambda m, x: m.b(x)), mean_of_list(lambda o, each: o.new_tensor(each)), LABELS),
    "a split at a count": (Model(lambda m, x: m.b(x)), split_at_wrong, LABELS),
    "how many are wrong": (
        Model(lambda m, x: m.b(x)),
        counted(lambda o, t: (o.argmax(1) != t).nonzero().size(0)), LABELS),
    "how many are positive": (
        Model(lambda m, x: m.b(x)), counted(lambda o, t: o[o > 0].numel()), LABELS),
    "how many differ": (
        Model(lambda m, x: m.b(x)), counted(lambda o, t: o.sign().unique().numel()), LABELS),
    "a second batch": (Model(lambda m, x: (m.b(x), m.b(OTHERS))), both, LABELS),
    "a larger second batch": (Model(lambda m, x: (m.b(x), m.b(MANY))), both, LABELS),
    "an anchor": (
        Model(lambda m, x: m.a(x) - m.a(ANCHOR)), lambda o, t: o.pow(2).mean(), LABELS),
    "a table of other rows": (
        Model(lambda m, x: MANY.gather(1, m.a(x).argmax(1, keepdim=True))),
        lambda o, t: o.sum(), LABELS),
    "a choice that is no argmax": (
        Model(lambda m, x: x.gather(1, m.a(x)[:, :1].abs().long().clamp(max=5))),
        lambda o, t: o.sum(), LABELS),
    "state written in place": (
        Model(remembers, membrane=torch.ones(BATCH, 6, dtype=torch.float64)), CE, LABELS),
    "a matrix added": (
        Model(lambda m, x: m.b(torch.relu(torch.addmm(x, x, m.w.t())))), CE, LABELS),
    "scaled sums": (
        Model(lambda m, x: torch.addmm(m.v, x, m.w.t(), beta=0.5, alpha=2.0)), CE, LABELS),
    "a value spread over a table": (
        Model(lambda m, x: (m.table * hidden(m, x).sum(1)).tanh(),
              table=numbers(BATCH, BATCH, seed=7)), lambda o, t: o.sum(), LABELS),
    "softmax over the middle": (
        Model(lambda m, x: torch.softmax(m.a(x).unsqueeze(-1), 1).sum(-1) * x),
        lambda o, t: o.pow(2).sum(), LABELS),
    "bits as integers": (
        Model(lambda m, x: m.b((m.a(x).view(torch.int64) >= 0).to(x.dtype))), CE, LABELS),
    "a weight transposed in name only": (
        Model(lambda m, x: m.b(torch.relu(x @ m.w.permute(0, 1)))), CE, LABELS),
    "a weight transposed twice": (
        Model(lambda m, x: m.b(torch.relu(x @ m.w.t().t()))), CE, LABELS),
    "a weight transposed by permute": (
        Model(lambda m, x: m.b(torch.relu(x @ m.w.permute(1, 0)))), CE, LABELS),
    "scatter into some rows": (
        Model(lambda m, x: m.b(hidden(m, x).scatter(1, torch.tensor([[1], [2], [3]]), 0.5))),
        CE, LABELS),
    "the largest integer": (
        Model(lambda m, x: m.b(
            (m.a(x).long().masked_fill(m.a(x) < 0, LARGEST) == LARGEST).to(x.dtype))), CE, LABELS),
    "integers among the factors": (
        Model(lambda m, x: m.b(torch.addcmul(m.a(x), (m.a(x) > 0).long(), x))), CE, LABELS),
    "a view with another axis of the same length": (
        Model(lambda m, x: m.b(hidden(m, x).view(6, BATCH).t())), CE, LABELS),
    "a sum of losses after a function no kernel knows": (
        Model(lambda m, x: m.b(torch.atan(m.a(x)))),
        lambda o, t: F.cross_entropy(o, t, reduction="sum"), LABELS),
    "the same noise drawn twice": (
        Model(lambda m, x: m.b(twice_noisy(hidden(m, x)))), CE, LABELS),
    "softmax over the examples": (
        Model(lambda m, x: m.b(torch.softmax(hidden(m, x), 0))), CE, LABELS),
    "the remainder of a truth": (
        Model(lambda m, x: m.b(((m.a(x) > 0) % 2).to(x.dtype))), CE, LABELS),
}  # fmt: skip


# Every model by rows, and in turns by one of the others.
PAIRS = [(name, "rows") for name in CASES]
PAIRS += [(name, ("full", "layers")[number % 2]) for number, name in enumerate(CASES)]


def pair_of_losses(model, inputs, target, loss, subspace):
    torch.manual_seed(0)
    for parameter in model.parameters():
        nn.init.normal_(parameter)
    problem = Problem(model.double(), inputs, target, loss)
    candidates = candidates_for(model, subspace, dim=3, scale=0.7)
    plain = ModelObjective(problem, OneByOne()).losses(candidates)
    return plain, ModelObjective(problem, Incremental()).losses(candidates)


@pytest.mark.filterwarnings("ignore:Using a target size")
@pytest.mark.parametrize(("name", "subspace"), PAIRS)
def test_losses_are_those_of_plain_passes(name, subspace):
    model, loss, target = CASES[name]
    plain, fast = pair_of_losses(model, INPUTS, target, loss, SUBSPACES[subspace])
    assert plain.unique().numel() > 1
    torch.testing.assert_close(fast, plain, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("subspace", SUBSPACES)
def test_one_example_that_is_spread_over_a_table(subspace):
    model = Model(lambda m, x: (m.table * hidden(m, x).sum(1)).tanh(), table=numbers(1, 1))
    plain, fast = pair_of_losses(
        model, numbers(1, 6), None, lambda o: (o * 1.3).sum(), SUBSPACES[subspace]
    )
    torch.testing.assert_close(fast, plain, rtol=1e-9, atol=1e-12)


def test_a_label_that_is_no_class_is_refused_as_torch_refuses_it():
    problem = Problem(
        Model(lambda m, x: m.b(x)).double(),
        INPUTS,
        LABELS + 1,
        lambda o, t: (o * F.one_hot(t, 3)).sum(),
    )
    candidates = candidates_for(problem.model, RowWise(2), dim=3)
    with pytest.raises(RuntimeError, match="Class values must be smaller"):
        ModelObjective(problem, Incremental()).losses(candidates)


@pytest.mark.parametrize("fused", [True, False])
def test_a_loss_tiny_beside_the_base_has_its_digits(fused):
    model = nn.Linear(1, 1, bias=False)
    with torch.no_grad():
        model.weight.fill_(30_000.0)
    inputs = numbers(BATCH, 1).float()
    problem = Problem(model, inputs, None, lambda o: o.pow(2).mean())
    candidates = candidates_for(model, Full(), dim=1, vertices=3)
    candidates.offsets.fill_(-29_999.0)
    found = ModelObjective(problem, Incremental(fused=fused)).losses(candidates)
    torch.testing.assert_close(found, inputs.pow(2).mean().expand(3))


def test_a_forked_process_has_threads_of_its_own():
    """What torch does in such a child is torch's affair; our threads must not be waited for."""
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        share_out(2, lambda first, last: None)
        child = os.fork()
        if child == 0:  # a pool without threads would never come back
            signal.alarm(30)
            share_out(2, lambda first, last: None)
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
    finally:
        torch.set_num_threads(before)
