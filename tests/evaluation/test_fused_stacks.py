"""Records over time: stacks are followed as their parts, with the losses of plain passes."""

import random

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from hardstep import PolyStep
from hardstep.evaluation import Problem
from hardstep.nn import build
from hardstep.subspaces import Full, LayerWise, RowWise

from .random_models import Hand
from .test_fused_functions import FORMS, check_fused
from .test_incremental import check_losses

INPUTS, HIDDEN, CLASSES, STEPS = 6, 9, 4, 4  # particles of three never straddle a row


def records(m, x):
    """Spikes and membranes of two leaky layers, a list over time each, as snnTorch writes it."""
    mem1, mem2 = torch.zeros(len(x), HIDDEN, dtype=x.dtype), torch.zeros(len(x), CLASSES).to(x)
    spk_rec, mem_rec = [], []
    for _ in range(STEPS):
        mem1 = 0.9 * mem1 + m.fc(x)
        spk1 = (mem1 > 0.5).to(x.dtype)
        mem1 = mem1 - 0.5 * spk1
        mem2 = 0.8 * mem2 + m.out(spk1)
        spk2 = (mem2 > 0.3).to(x.dtype)
        mem2 = mem2 - 0.3 * spk2
        spk_rec.append(spk2)
        mem_rec.append(mem2)
    return spk_rec, mem_rec


def problem_with(
    readout, dtype=torch.float64, batch=11, loss=F.cross_entropy, forward=None, bias=True
):
    """The leaky layers, and a function of (spikes, membranes) that gives the model's output."""

    def reads(m, x):
        return readout(*records(m, x))

    def make():
        fc, out = nn.Linear(INPUTS, HIDDEN, bias=bias), nn.Linear(HIDDEN, CLASSES, bias=bias)
        return Hand(forward or reads, fc=fc, out=out)

    model = build(make, 0).to(dtype)
    with torch.no_grad():
        for tensor in model.parameters():
            tensor.mul_(1.5)
    generator = torch.Generator().manual_seed(0)
    inputs = 2 * torch.randn(batch, INPUTS, generator=generator, dtype=dtype)
    return Problem(model, inputs, torch.arange(batch) % CLASSES, loss)


def growing(start):
    """A record to which every step is joined."""

    def readout(s, m):
        record = start(m[0])
        for value in m:
            record = torch.cat([record, value.unsqueeze(0)])
        return record.mean(0)

    return readout


def told_apart(s, m):
    first, *others = torch.stack(m).unbind(0)
    return first - 0.5 * others[-1] + others[0] * others[1]


def by_hand(s, m):
    """The iteration is torch's: every step of the record in turn."""
    total = 0.0
    for number, value in enumerate(torch.stack(m)):
        total = total + value / (1 + number)
    return total


def ramp(like):
    """Something that does not depend on the weights."""
    return torch.linspace(-1, 1, CLASSES).to(like).expand_as(like)


def unread_parts(s, m):
    """Some of what is taken from a record does not change."""
    record = torch.stack([ramp(m[0]), *m])
    return record[0] * 2 + record[:1].sum(0) * 3 + torch.relu(record[0]) * record[1]


READOUTS_FUSED = {
    "sum": lambda s, m: torch.stack(s).sum(0),
    "sum in double": lambda s, m: torch.stack(m).sum(0, dtype=torch.float64).to(m[0]),
    "mean, axis from the end": lambda s, m: torch.stack(s).mean(-3),
    "batch first": lambda s, m: torch.stack(m, dim=1).mean(1),
    "time last": lambda s, m: torch.stack(m, dim=-1).sum(-1),
    "last step": lambda s, m: torch.stack(m)[-1],
    "a step": lambda s, m: torch.stack(m, 1)[:, 1],
    "unbind": told_apart,
    "iteration": by_hand,
    "every other but the first": lambda s, m: torch.stack(m)[1::2].sum(0),
    "amax": lambda s, m: torch.stack(m).amax(0),
    "amin": lambda s, m: torch.stack(m, 1).amin(1),
    "max and its step": lambda s, m: sum(torch.stack(m).max(0)),
    "min and its step": lambda s, m: sum(torch.stack(m).min(0)),
    "first spike": lambda s, m: torch.stack(s).argmax(0).to(m[0]) * 0.5,
    "first silence": lambda s, m: torch.stack(s, -1).argmin(-1).to(m[0]) * 0.5,
    "steps that are not numbers": lambda s, m: (
        torch.stack([v.sqrt() for v in m]).max(0).indices.to(m[0]) * 0.5
    ),
    "truths": lambda s, m: torch.stack([v > 0 for v in m]).sum(0).to(m[0]),
    "any spike": lambda s, m: torch.stack([v > 0.5 for v in s]).amax(0).to(m[0]),
    "joined": lambda s, m: torch.cat([v.unsqueeze(0) for v in m]).sum(0),
    "joined along 1": lambda s, m: torch.cat([v[:, None] for v in m], dim=1).mean(1),
    "growing from zeros": growing(lambda v: torch.zeros_like(v)[None]),
    "growing from nothing": growing(lambda v: torch.empty(0, dtype=v.dtype)),
    "two records joined": lambda s, m: torch.cat([torch.stack(s), torch.stack(m)]).mean(0),
    "element by element": lambda s, m: (2 * torch.stack(m).sigmoid() - 1).clone().mean(0),
    "the larger of two records": lambda s, m: torch.maximum(torch.stack(s), torch.stack(m)).sum(0),
    "compared": lambda s, m: (torch.stack(m) > 0.1).to(m[0]).sum(0),
    "mixed types": lambda s, m: torch.stack([m[0], m[1].double(), m[2].float()]).amax(0).to(m[0]),
    "unchanged parts": lambda s, m: torch.stack([m[0], ramp(m[0]), -ramp(m[0]), m[1]]).amax(0),
    "unread parts": unread_parts,
    "columns and whole values": lambda s, m: torch.stack([torch.softmax(m[1], 1), m[0]]).sum(0),
    "softmax of every step": lambda s, m: torch.softmax(torch.stack(m), dim=-1).mean(0),
    "a number per example": lambda s, m: m[0] * torch.stack([v.sum(1) for v in m]).mean(0)[:, None],
    "one unit": lambda s, m: m[0] * torch.stack([v.mean(1, True) for v in m]).sum(0),
    "one step": lambda s, m: m[0].unsqueeze(0).sum(0),
    "a unit of every step": lambda s, m: m[0] * torch.stack(m)[:, :, 1].mean(0)[:, None],
    "a unit, batch first": lambda s, m: m[0] * torch.stack(m, 1)[..., -1].amax(1)[:, None],
    "some units of every step": lambda s, m: (
        m[0] * torch.stack(m)[..., 1:3].sum(0).mean(1, keepdim=True)
    ),
    "halves of every step": lambda s, m: m[1] * torch.stack(m).chunk(2, -1)[1][-1].sum(1, True),
    "transposed": lambda s, m: torch.stack(m).transpose(0, 1).sum(1),
    "side by side": lambda s, m: torch.cat(m, dim=1)[:, 2 : 2 + CLASSES],
}
# Not covered by kernels; the losses must agree all the same.
READOUTS_FOLLOWED = {
    "softmax over time": lambda s, m: (torch.softmax(torch.stack(m), 0) * torch.stack(s)).sum(0),
    "weighted steps": lambda s, m: (
        torch.stack(m) * torch.arange(STEPS).to(m[0])[:, None, None]
    ).sum(0),
    "centered": lambda s, m: (torch.stack(m) - torch.stack(m).mean(0, keepdim=True))[-1],
    "cumsum": lambda s, m: torch.stack(m).cumsum(0)[-1],
    "variance": lambda s, m: torch.stack(m).var(0),
    "flattened": lambda s, m: torch.stack(m).flatten(1).reshape(STEPS, -1, CLASSES).sum(0),
    "time and units": lambda s, m: m[0] * torch.stack(m).sum((0, 2))[:, None],
    "examples": lambda s, m: m[0] + torch.stack(m).mean(1)[:1],
    "a stack of stacks": lambda s, m: torch.stack([torch.stack(s), torch.stack(m)]).sum((0, 1)),
    "chosen steps": lambda s, m: torch.stack(m)[torch.tensor([0, 2])].sum(0),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", [*READOUTS_FUSED, *READOUTS_FOLLOWED])
def test_readouts_of_records(name):
    readout = (READOUTS_FUSED | READOUTS_FOLLOWED)[name]
    for subspace, dtype in FORMS:
        # Dense directions would compile two more kernels for biases; losses of records have them.
        problem = problem_with(readout, dtype, bias=dtype == torch.float64)
        evaluator, _ = check_losses(problem, name, subspace, dtype)
        fused = set(evaluator.notes.values()) == {"fused"}
        assert fused == (name in READOUTS_FUSED), evaluator.notes


@pytest.mark.parametrize(
    ("name", "batch"),
    [("sum", 1), ("sum", STEPS), ("batch first", STEPS), ("time last", STEPS), ("a step", 1),
     ("max and its step", STEPS), ("joined", 1), ("joined along 1", 1), ("joined along 1", STEPS),
     ("unchanged parts", STEPS), ("a number per example", STEPS), ("one unit", 1)],
)  # fmt: skip
def test_axes_of_one_size_are_not_confused(name, batch):
    """As many examples as steps and classes; and one example."""
    problem = problem_with(READOUTS_FUSED[name], batch=batch)
    check_fused(problem, name, RowWise(2), torch.float64)


# -- losses of a tuple of records ----------------------------------------------------------------


def both(m, x):
    """What snnTorch's tutorials return: (time, examples, classes) twice."""
    spk_rec, mem_rec = records(m, x)
    return torch.stack(spk_rec), torch.stack(mem_rec)


def at_every_step(output, target):
    """The loss of snnTorch's fifth tutorial."""
    loss = torch.zeros((), dtype=output[1].dtype)
    for step in range(STEPS):
        loss += F.cross_entropy(output[1][step], target)
    return loss


def rate(output, target):
    """The same with one softmax for all steps, as in snnTorch's `ce_rate_loss`."""
    scores = F.log_softmax(output[0], dim=-1)
    return sum(F.nll_loss(scores[step], target) for step in range(STEPS)) / STEPS


LOSSES_FUSED = {
    "counts": lambda o, t: F.cross_entropy(o[0].sum(0), t),
    "rates": lambda o, t: F.mse_loss(o[0].mean(0), F.one_hot(t, CLASSES).to(o[0])),
    "largest membrane": lambda o, t: F.nll_loss(F.log_softmax(o[1].max(0)[0], -1), t),
    "last membrane": lambda o, t: F.cross_entropy(o[1][-1], t),
    "every step": at_every_step,
    "rate": rate,
    "few spikes": lambda o, t: F.cross_entropy(o[1].mean(0), t) + 0.1 * o[0].mean(),
    "small membranes": lambda o, t: F.cross_entropy(o[0].sum(0), t) + 0.01 * (o[1] ** 2).sum(),
    "all of it": lambda o, t: F.cross_entropy(o[0].sum(0) + 0.1 * o[1].sum(0), t),
}
LOSSES_FOLLOWED = {
    "every pair": lambda o, t: F.cross_entropy(o[1].flatten(0, 1), t.repeat(STEPS)),
    "targets over time": lambda o, t: F.mse_loss(o[1], o[1].detach() * 0 + t[:, None] / CLASSES),
}


@pytest.mark.parametrize(("number", "name"), list(enumerate(LOSSES_FUSED | LOSSES_FOLLOWED)))
def test_losses_of_records(number, name):
    loss, (subspace, dtype) = (LOSSES_FUSED | LOSSES_FOLLOWED)[name], FORMS[number % 2]
    problem = problem_with(None, dtype, loss=loss, forward=both)
    evaluator, _ = check_losses(problem, name, subspace, dtype)
    fused = set(evaluator.notes.values()) == {"fused"}
    assert fused == (name in LOSSES_FUSED), evaluator.notes


# -- readouts that nobody wrote --------------------------------------------------------------------


def drawn(seed, seen):
    """A random way to record, to change what was recorded, and to read it; notes what it drew."""

    def readout(s, m):
        random_choice = random.Random(seed)

        def pick(what, options):
            number = random_choice.randrange(len(options))
            seen.add((what, number))
            return options[number]

        kinds = [
            lambda t: m[t], lambda t: s[t], lambda t: torch.tanh(m[t]), lambda t: m[t] * s[t - 1],
            lambda t: torch.full_like(m[t], 0.1 * t), lambda t: (m[t] > 0.2).to(m[t]),
        ]  # fmt: skip
        steps = [m[0], *(pick("kind", kinds)(t) for t in range(STEPS))]
        axis = pick("axis", [0, 1])
        ways = [torch.stack, lambda steps, dim: torch.cat([v.unsqueeze(dim) for v in steps], dim)]
        record = pick("record", ways)(steps, dim=axis)
        changes = [
            lambda r: r, lambda r: r * 0.7, lambda r: 1 - r, lambda r: r.clamp(min=0),
            lambda r: r.clone(), lambda r: r.narrow(axis, 0, 3), lambda r: torch.cat([r, r], axis),
        ]  # fmt: skip
        for _ in range(2):
            record = pick("change", changes)(record)
        readings = [
            lambda r: r.sum(axis), lambda r: r.mean(axis), lambda r: r.amax(axis),
            lambda r: r.min(axis).values, lambda r: r.argmax(axis) * m[1],
            lambda r: r.select(axis, -1), lambda r: torch.tanh(r.unbind(axis)[1]),
        ]  # fmt: skip
        one, other = (pick("reading", readings)(record) for _ in range(2))
        return one + 0.5 * other + 0.1 * m[2]

    return readout


DRAWN = {"kind": 6, "axis": 2, "record": 2, "change": 7, "reading": 7}
SEEDS = range(9)  # enough to draw everything, in every subspace and either precision


@pytest.mark.parametrize("seed", SEEDS)
def test_random_readouts_of_records(seed):
    subspace = (RowWise(2), Full(), RowWise(None), LayerWise(1))[seed % 4]
    dtype = (torch.float64, torch.float32)[seed // 4 % 2]
    check_fused(problem_with(drawn(seed, set()), dtype), seed, subspace, dtype)


def test_random_readouts_draw_everything():
    seen = set()
    for seed in SEEDS:
        problem = problem_with(drawn(seed, seen), batch=2)
        problem.model(problem.inputs)
    assert seen == {(what, number) for what, num in DRAWN.items() for number in range(num)}


# -- what is said about it -------------------------------------------------------------------------


def explained(forward, loss):
    problem = problem_with(None, torch.float32, batch=32, loss=loss, forward=forward)
    return PolyStep(problem.model, subspace=RowWise(2)).explain(
        problem.inputs, problem.target, problem.loss_fn
    )


def counted(m, x):
    """The same counts without a record."""
    return sum(records(m, x)[0])


def test_a_record_of_spikes_is_fused_at_the_price_of_a_counter():
    recorded = explained(both, lambda o, t: F.cross_entropy(o[0].sum(0), t))
    plain = explained(counted, F.cross_entropy)
    for row, cheapest in zip(recorded.parameters, plain.parameters, strict=True):
        assert (row.path, row.reason) == ("fused", "")
        assert row.cost.operations <= cheapest.cost.operations
        assert row.cost.nbytes <= cheapest.cost.nbytes


@pytest.mark.parametrize("unread", [torch.stack, lambda m: torch.stack(m).cumsum(0)])
def test_a_record_that_no_loss_reads_costs_nothing(unread):
    def beside(m, x):
        spk_rec, mem_rec = records(m, x)
        return sum(spk_rec), unread(mem_rec)

    def loss(output, target):
        return F.cross_entropy(output[0], target)

    assert explained(beside, loss).parameters == explained(counted, F.cross_entropy).parameters


@pytest.mark.parametrize(
    ("reason", "readout"),
    [
        ("_softmax of a stack other than along its last axis", "softmax over time"),
        ("mul of a stack and other values", "weighted steps"),
        ("mean of a stack with keepdim", "centered"),
        ("cumsum of a stack", "cumsum"),
        ("sum of a stack other than along its axis alone", "time and units"),
    ],
)
def test_what_no_kernel_does_with_a_record_is_named(reason, readout):
    def forward(m, x):
        return READOUTS_FOLLOWED[readout](*records(m, x))

    for row in explained(forward, F.cross_entropy).parameters:
        assert (row.path, row.reason) == ("incremental", reason)
