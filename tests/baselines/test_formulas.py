"""Each baseline against its own formula, written out."""

import math

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from hardstep import Cosine, Full, LowRank, PolyStep, RowWise, seeds
from hardstep.baselines import (
    AdamTwin,
    CmaEs,
    Eggroll,
    InSubspace,
    MeZo,
    OpenAiEs,
    RandomSearch,
    Spsa,
    center_ranks,
    standardize,
)
from hardstep.baselines.low_rank import Factored
from hardstep.nn import SmoothLIF, SpikingMLP, build
from hardstep.subspaces import Adaptive, Layout, trainable
from hardstep.tasks.architectures import spiking_mlp
from tests.baselines.small import batches, net, steps, weights

DIM = 6


def curved(x):
    """A loss of vectors (N, DIM) without symmetry."""
    scale = torch.arange(1.0, DIM + 1, dtype=x.dtype)
    return (scale * (x - 0.3) ** 2).sum(dim=1) + x[:, 0] ** 3


def stacked(tensors):
    return curved(tensors["x"])


def start():
    return {"x": torch.linspace(-1, 1, DIM, dtype=torch.float64)}


# -- SPSA ---------------------------------------------------------------------------------------


def test_spsa_gains_are_the_standard_sequences():
    optimizer = Spsa(start(), a=0.16, c=0.2, stability=50, alpha=0.602, gamma=0.101)
    for step in (0, 1, 9, 999):
        k = step + 1
        expected = (0.16 / (50 + k) ** 0.602, 0.2 / k**0.101)
        assert optimizer.gains(step) == pytest.approx(expected, rel=1e-15)


def test_spsa_moves_by_the_simultaneous_perturbation_formula():
    tensors = start()
    optimizer = Spsa(tensors, a=0.3, c=0.05, stability=7, subspace=Full(), seed=5)
    for step in range(4):
        x = tensors["x"].clone()
        coins = torch.randint(0, 2, (DIM,), generator=seeds.generator(5, "spsa", step))
        delta = 2.0 * coins.double() - 1
        a, c = 0.3 / (7 + step + 1) ** 0.602, 0.05 / (step + 1) ** 0.101
        above, below = curved(torch.stack([x + c * delta, x - c * delta]))
        gradient = (above - below) / (2 * c * delta)
        loss = optimizer.step(batched=stacked)
        assert torch.allclose(tensors["x"], x - a * gradient, rtol=0, atol=1e-12)
        assert loss == pytest.approx(float(above + below) / 2)
        assert optimizer.report.probe_radius == pytest.approx(c * math.sqrt(DIM))


# -- MeZO ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("subspace", [Full(), RowWise(rank=1)], ids=str)
def test_mezo_moves_by_the_two_point_formula(subspace):
    """θ ← θ − η (L(θ + μΠz) − L(θ − μΠz)) / 2μ · Πz, on a network and on its subspace."""
    model = net().double()
    optimizer = MeZo(model, learning_rate=0.02, mu=1e-3, subspace=subspace, seed=2)
    inputs, labels = batches().batch(0, 0)
    inputs = inputs.double()
    for step in range(3):
        before = {name: p.detach().clone() for name, p in model.named_parameters()}
        generator = seeds.generator(2, "mezo", step)
        z = torch.randn(optimizer.space.dim, generator=generator).double()
        direction = optimizer.space.expand(z)

        def loss_at(distance, before=before, direction=direction):
            values = {n: t + distance * direction[n] for n, t in before.items()}
            output = torch.func.functional_call(model, values, inputs)
            return float(cross_entropy(output, labels))

        slope = (loss_at(1e-3) - loss_at(-1e-3)) / 2e-3
        optimizer.step(inputs, labels, cross_entropy)
        for name, parameter in model.named_parameters():
            expected = before[name] - 0.02 * slope * direction[name]
            assert torch.allclose(parameter, expected, rtol=0, atol=1e-10)


def test_a_learning_rate_may_follow_a_schedule():
    rates = (Cosine(0.1, 0.0, 4), 0.1)
    pair = [MeZo(start(), learning_rate=rate, subspace=Full()) for rate in rates]
    for step in range(5):
        for optimizer in pair:
            optimizer.step(batched=lambda t: t["x"].sum(dim=1))  # the same slope everywhere
        scheduled, constant = (optimizer.report.displacement for optimizer in pair)
        factor = (1 + math.cos(math.pi * min(step / 4, 1))) / 2
        assert scheduled == pytest.approx(factor * constant, rel=1e-5, abs=1e-12)


# -- random search ------------------------------------------------------------------------------


def test_random_search_takes_the_best_of_its_moves_only_if_it_is_better():
    tensors = start()
    optimizer = RandomSearch(tensors, sigma=0.4, population=5, subspace=Full(), seed=1)
    kept = 0
    for step in range(30):
        x = tensors["x"].clone()
        noise = torch.randn(5, DIM, generator=seeds.generator(1, "random search", step))
        tried = x + 0.4 * noise.double()
        losses, here = curved(tried), float(curved(x[None]))
        better = float(losses.min()) < here
        expected = tried[losses.argmin()] if better else x
        assert optimizer.step(batched=stacked) == pytest.approx(min(here, float(losses.min())))
        assert torch.allclose(tensors["x"], expected, rtol=0, atol=1e-6)
        kept += better
    assert 0 < kept < 30


# -- EGGROLL ------------------------------------------------------------------------------------


class Odd(nn.Module):
    """A matrix, a convolution, a matrix thinner than the rank, and vectors."""

    def __init__(self):
        super().__init__()
        self.matrix = nn.Linear(4, 5)
        self.filters = nn.Parameter(torch.randn(3, 2, 2))
        self.thin = nn.Parameter(torch.randn(1, 6))
        self.gain = nn.Parameter(torch.ones(5))


def quadratic(tensors):
    return sum(((t - 0.1) ** 2).flatten(1).sum(dim=1) for t in tensors.values())


@pytest.mark.parametrize("shaping", [standardize, center_ranks])
@pytest.mark.parametrize("rank", [1, 2, 3])
def test_eggroll_moves_by_the_average_of_its_low_rank_members(rank, shaping):
    """W ← W − α/N Σ f_i A_i B_iᵀ/√r, as an explicit sum of matrices."""
    tensors = trainable(build(Odd, 3).double())
    population, sigma, rate = 6, 0.3, 0.05
    settings = {"sigma": sigma, "rank": rank, "population": population, "shaping": shaping}
    optimizer = Eggroll(tensors, learning_rate=rate, seed=8, **settings)
    before = {name: tensor.detach().clone() for name, tensor in tensors.items()}
    members = members_of(before, rank, population, seed=8)
    losses = quadratic({n: before[n] + sigma * e for n, e in members.items()})
    assert optimizer.step(batched=quadratic) == pytest.approx(float(losses.mean()), rel=1e-6)
    fitness = shaping(losses)
    for name, noise in members.items():
        average = sum(f * e for f, e in zip(fitness, noise, strict=True)) / population
        expected = before[name] - rate * average
        assert torch.allclose(tensors[name], expected, rtol=0, atol=1e-6)


def members_of(tensors, rank, population, seed):
    """E_i of every tensor, (N, *shape), from the draws that EGGROLL makes in its first step."""
    sizes = {}
    for name, t in tensors.items():
        rows, columns = (t.shape[0], t.numel() // t.shape[0]) if t.dim() > 1 else (t.numel(), 0)
        sizes[name] = (rows, columns, min(rank, rows, columns) if columns else 1)
    dim = sum((rows + columns) * r for rows, columns, r in sizes.values())
    generator = seeds.generator(seed, "eggroll", 0)
    draws = torch.randn(population // 2, dim, generator=generator).double()
    members, place = {}, 0
    for name, (rows, columns, r) in sizes.items():
        half = []
        for draw in draws:
            left = draw[place : place + rows * r].reshape(rows, r)
            right = draw[place + rows * r : place + (rows + columns) * r].reshape(columns, r)
            noise = left @ right.T / math.sqrt(r) if columns else left
            half.append(noise.reshape(tensors[name].shape))
        members[name] = torch.stack(half + [-noise for noise in half])
        place += (rows + columns) * r
    return members


def test_eggroll_members_have_unit_entries_and_low_rank_and_their_average_has_not():
    layout = Layout({"w": torch.zeros(12, 9)})
    space = Factored(2).bind(layout, 8, 0)
    generator = torch.Generator().manual_seed(0)
    noise = torch.randn(2000, space.dim, generator=generator) * space.scales(0.5)
    members = torch.stack([space.expand(z)["w"] for z in noise])
    assert float(members.std()) == pytest.approx(0.5, rel=0.02)
    assert int(torch.linalg.matrix_rank(members[0])) == 2
    average = space.combine(torch.ones(10), noise[:10])["w"]
    assert int(torch.linalg.matrix_rank(average)) == 9
    assert torch.allclose(average, members[:10].sum(dim=0), atol=1e-5)
    assert torch.allclose(space.expand(space.mirror(noise[:1])[0])["w"], -members[0])


def test_standardized_losses_have_mean_0_and_variance_1():
    shaped = standardize(torch.tensor([3.0, 1.0, 7.0, 2.0], dtype=torch.float64))
    assert float(shaped.mean()) == pytest.approx(0)
    assert float(shaped.var(correction=0)) == pytest.approx(1, abs=1e-5)
    assert standardize(torch.ones(4)).tolist() == [0] * 4


# -- population methods in a subspace -----------------------------------------------------------


@pytest.mark.parametrize("method", [OpenAiEs, CmaEs])
@pytest.mark.parametrize("subspace", [RowWise(rank=2), Full()], ids=str)
def test_the_model_holds_the_center_of_the_method(method, subspace):
    model = net()
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    optimizer = InSubspace(model, method, subspace=subspace)
    steps(optimizer, 4)
    center = optimizer.space.expand(optimizer.population.center)
    for name, parameter in model.named_parameters():
        assert torch.allclose(parameter, before[name] + center[name], atol=1e-5)


@pytest.mark.parametrize("subspace", [RowWise(rank=2), Adaptive(rank=2), LowRank(rank=2)], ids=str)
def test_the_subspace_is_the_one_polystep_searches(subspace):
    theirs = PolyStep(net(), subspace=subspace, seed=4).subspace
    ours = Spsa(net(), subspace=subspace, seed=4).space
    z = torch.randn(theirs.dim, generator=torch.Generator().manual_seed(0))
    changes = ours.expand(z)
    for name, change in theirs.expand(z).items():
        assert torch.equal(change, changes[name])


def test_openai_es_in_the_full_space_is_the_method_on_a_vector():
    tensors = {"x": torch.zeros(DIM, dtype=torch.float64)}
    optimizer = InSubspace(tensors, OpenAiEs, subspace=Full(), seed=3)
    alone = OpenAiEs(torch.zeros(DIM).double(), seed=seeds.derive(3, "population", 0))
    for _ in range(5):
        optimizer.step(batched=stacked)
        alone.tell(curved(alone.ask()))
    assert torch.allclose(tensors["x"], alone.center, rtol=0, atol=1e-12)


def test_openai_es_follows_adam_with_a_scheduled_rate():
    annealed = Cosine(0.1, 0.0, 4)
    method = OpenAiEs(torch.zeros(DIM).double(), learning_rate=annealed, population=8)
    center = torch.zeros(DIM).double().requires_grad_()
    adam = torch.optim.Adam([center], lr=annealed(0))
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(adam, 4)
    for _ in range(4):
        members = method.ask()
        losses = curved(members)
        ranks = losses.argsort().argsort() / 7 - 0.5
        noise = (members - center.detach()) / method.sigma
        center.grad = ranks.double() @ noise / (8 * method.sigma)
        adam.step()
        schedule.step()
        method.tell(losses)
        assert torch.allclose(method.center, center.detach(), rtol=0, atol=1e-6)
    last = method.center.clone()
    method.ask()
    method.tell(torch.arange(8.0))
    assert torch.equal(method.center, last)  # the rate has reached 0


@pytest.mark.parametrize(
    "subspace", [Adaptive(rank=1, every=3), RowWise(rank=1, redraw=3)], ids=str
)
def test_a_method_restarts_when_coordinates_lose_their_meaning(subspace):
    optimizer = InSubspace(net(), OpenAiEs, subspace=subspace)
    steps(optimizer, 3)
    assert float(optimizer.population.center.norm()) == 0
    steps(optimizer, 5, first=3)
    assert float(optimizer.population.center.norm()) > 0
    again = InSubspace(net(), OpenAiEs, subspace=subspace)
    again.load_state_dict(optimizer.state_dict())
    again.model.load_state_dict(optimizer.model.state_dict())
    assert steps(again, 8, first=5) == steps(optimizer, 8, first=5)


def test_a_factored_subspace_moves_along():
    """A bilinear map: the weights are A Bᵀ − A₀ B₀ᵀ away from where they were."""
    model = net()
    optimizer = InSubspace(model, OpenAiEs, subspace=LowRank(rank=1))
    first = {name: value.clone() for name, value in optimizer.space.state_dict().items()}
    before = model[0].weight.detach().clone()
    steps(optimizer, 4)
    last = optimizer.space.state_dict()
    left, right = "left.0.weight", "right.0.weight"
    change = last[left] @ last[right].T - first[left] @ first[right].T
    assert torch.allclose(model[0].weight, before + change, atol=1e-5)


# -- Adam ---------------------------------------------------------------------------------------


def test_adam_through_the_twin_is_adam_on_the_twin():
    model = build(lambda: spiking_mlp(64, 8, 10), 0)
    twin = build(lambda: SpikingMLP((64, 8, 10), lif=SmoothLIF(slope=2.0)), 5)
    untouched = weights(twin)
    optimizer = AdamTwin(model, twin, learning_rate=Cosine(0.01, 0.0, 6))
    plain = build(lambda: SpikingMLP((64, 8, 10), lif=SmoothLIF(slope=2.0)), 0)
    adam = torch.optim.Adam(plain.parameters(), lr=0.01)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(adam, 6)
    assert torch.equal(weights(model), weights(plain))
    stream = batches()
    for number in range(6):
        inputs, labels = stream.batch(0, number)
        adam.zero_grad()
        loss = cross_entropy(plain(inputs), labels)
        loss.backward()
        adam.step()
        schedule.step()
        assert optimizer.step(inputs, labels, cross_entropy) == pytest.approx(loss.item())
        assert torch.allclose(weights(model), weights(plain), atol=1e-6)
    assert torch.equal(weights(twin), untouched)
    assert all(p.grad is None for p in [*model.parameters(), *twin.parameters()])


def test_adam_leaves_frozen_parameters_and_a_loss_that_is_not_finite_alone():
    model = net()
    model[0].weight.requires_grad_(False)
    before = model[0].weight.detach().clone()
    optimizer = AdamTwin(model, net(1), learning_rate=0.01)
    steps(optimizer, 2)
    assert torch.equal(model[0].weight, before)
    held = weights(model)
    inputs, labels = batches().batch(0, 0)
    loss = optimizer.step(inputs, labels, lambda o, t: cross_entropy(o, t) * math.nan)
    assert math.isnan(loss)
    assert torch.equal(weights(model), held)
    assert (optimizer.report.nonfinite, optimizer.evaluations) == (1, 3)
