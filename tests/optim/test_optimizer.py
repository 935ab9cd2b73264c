import math
import random
from functools import partial

import numpy as np
import pytest
import torch
from torch import nn
from torch.func import functional_call

from hardstep.errors import NonFiniteLossError
from hardstep.evaluation import Batched, FunctionObjective, OneByOne
from hardstep.geometry import Biased, Jitter, Mollifier, Orthoplex, Simplex
from hardstep.nn import build
from hardstep.optim import Momentum, PlanReuse, PolyStep
from hardstep.schedules import Length, Linear, TimesTemperature
from hardstep.solvers import RowSoftmax, Sinkhorn
from hardstep.subspaces import Full, LayerWise, LowRank, RowWise
from tests.evaluation.catalogue import Tied

from .toys import (
    Net,
    batch,
    constant_loss,
    flat,
    mse,
    parameters,
    parameters_at,
    stacked_loss,
    tiny,
)


def assert_close(actual, expected, tolerance=1e-10):
    torch.testing.assert_close(actual, expected, rtol=0, atol=tolerance)


# -- the ways to give an objective -----------------------------------------------------------


def after_step(*objective, model=None, **named):
    """The parameters of a model after one step, and the loss that the step returned."""
    opt = tiny(model := model or Net())
    loss = opt.step(*objective, **named)
    return torch.cat([parameters(model), torch.tensor([loss]).double()])


def test_a_batch_a_closure_a_batched_function_and_an_objective_give_the_same_step():
    (x, y), model = batch(), Net()
    batched = partial(stacked_loss, x=x, y=y)
    expected = after_step(x, y, mse)
    for other in (
        after_step(lambda: mse(model(x), y), model=model),
        after_step(batched=batched),
        after_step(objective=FunctionObjective(batched)),
    ):
        assert_close(other, expected, 1e-12)
    assert (expected[:-1] - parameters(Net())).norm() > 1e-3


class TwoInputs(Net):
    def forward(self, x, scale):
        return super().forward(x) * scale


def test_inputs_may_be_a_tensor_a_tuple_of_arguments_or_a_dict_of_them():
    x, y = batch()
    scale = torch.full((6, 1), 1.5).double()
    expected = after_step(x, y / 1.5, lambda out, target: mse(1.5 * out, 1.5 * target))
    first, *others = (
        after_step(inputs, y, mse, model=TwoInputs())
        for inputs in ((x, scale), [x, scale], {"scale": scale, "x": x})
    )
    assert all(torch.equal(other, first) for other in others)
    assert_close(first, expected, 1e-12)


def test_a_target_is_handed_to_the_loss_function_as_it_is_and_may_be_left_out():
    x, y = batch()
    expected = after_step(x, y, mse)
    for target, loss_fn in (
        ((y, 1.0), lambda out, pair: mse(out, pair[0]) * pair[1]),
        ({"y": y}, lambda out, named: mse(out, named["y"])),
        (None, lambda out: mse(out, y)),
    ):
        assert torch.equal(after_step(x, target, loss_fn), expected)


def test_named_tensors_are_changed_in_place_and_a_sum_of_squares_shrinks():
    tensors = {"a": torch.full((3,), 2.0), "b": torch.full((2, 2), -2.0)}
    opt = tiny(tensors, subspace=Full(), step_radius=Length(0.3), probe_radius=Length(0.3))
    for _ in range(60):
        opt.step(batched=lambda t: t["a"].square().sum(1) + t["b"].square().sum((1, 2)))
    assert flat(tensors).norm() < 0.5  # from 5.3
    before = flat(tensors)
    opt.step(lambda: float(tensors["a"].square().sum() + tensors["b"].square().sum()))
    assert not torch.equal(flat(tensors), before)


# -- the four pieces ----------------------------------------------------------------------------


@pytest.mark.parametrize("subspace", [Full(), RowWise(rank=1), LayerWise(1), LowRank(1)], ids=repr)
def test_a_loss_is_that_of_the_model_with_the_parameters_at_its_probe(subspace):
    model, (x, y) = Net(), batch()
    opt = tiny(model, subspace=subspace, num_probes=2, polytope=Orthoplex(3))
    proposal = opt.propose()
    losses = opt.evaluate(proposal, x, y, mse)
    assert losses.shape == (opt.num_particles, 6, 2)
    for particle in range(opt.num_particles):
        for vertex, probe in ((0, 0), (3, 1), (5, 0)):
            at = parameters_at(opt, proposal, particle, vertex, probe)
            expected = mse(functional_call(model, at, (x,)), y).item()
            assert losses[particle, vertex, probe].item() == pytest.approx(expected, abs=1e-10)


def test_propose_evaluate_advance_is_a_step_and_proposing_alone_changes_nothing():
    x, y = batch()
    whole, pieces = Net(), Net()
    expected = tiny(whole).step(x, y, mse)
    opt = tiny(pieces)
    before = parameters(pieces)
    proposal = opt.propose()
    losses = opt.evaluate(proposal, x, y, mse)
    again = opt.propose()
    assert torch.equal(proposal.probes, again.probes)
    assert torch.equal(parameters(pieces), before)
    assert (opt.steps, opt.evaluations) == (0, 0)
    assert opt.advance(proposal, losses) == expected
    assert torch.equal(parameters(pieces), parameters(whole))
    assert (opt.steps, opt.evaluations) == (1, losses.numel())
    assert opt.report.evaluations == opt.evaluations_per_step == losses.numel()


def in_order(changes, model):
    """Changes of tensors as one vector, in the order of the model's parameters."""
    return torch.cat([changes[name].reshape(-1) for name, _ in model.named_parameters()])


def test_coordinates_expand_to_what_the_parameters_have_travelled():
    model = Net()
    opt, start = tiny(model), parameters(Net())
    for i in range(3):
        opt.step(*batch(i), mse)
    travelled = in_order(opt.subspace.expand(opt.coordinates), model)
    assert_close(parameters(model) - start, travelled)
    assert travelled.norm() > 0.1


def test_candidates_come_in_the_order_particle_vertex_probe():
    opt = tiny(Net(), num_probes=2)
    proposal = opt.propose()
    candidates = opt.candidates(proposal)
    assert len(candidates) == opt.evaluations_per_step == opt.num_particles * 3 * 2
    number = (4 * 3 + 1) * 2 + 1
    expected = parameters_at(opt, proposal, 4, 1, 1)
    for name, tensor in candidates.parameters(number).items():
        assert_close(tensor, expected[name], 1e-15)


# -- the report ---------------------------------------------------------------------------------


def test_the_report_of_a_step_gives_its_lengths_losses_and_price():
    opt = tiny(model := Net(), num_probes=2, temperature=0.05, probe_radius=TimesTemperature(12.0))
    before = parameters(model)
    x, y = batch()
    losses = opt.evaluate(opt.propose(), x, y, mse)
    returned = opt.step(x, y, mse)
    report, costs = opt.report, losses.mean(dim=2)
    spread = (costs.amax(1) - costs.amin(1)) / 0.05
    weights = torch.softmax(-costs / 0.05, dim=1)
    assert returned == report.loss == pytest.approx(float((weights * costs).sum(1).mean()), 1e-12)
    assert (report.step, report.solved, report.nonfinite) == (0, True, 0)
    assert (report.temperature, report.step_radius) == (0.05, 0.5)
    assert report.probe_radius == pytest.approx(0.6, rel=1e-15)
    assert report.evaluations == opt.num_particles * 3 * 2 == opt.evaluations
    assert report.spread_max == pytest.approx(float(spread.max()), rel=1e-12)
    assert report.spread_share == pytest.approx(float((spread > 1).double().mean()))
    assert 0 < report.spread_share < 1
    assert report.dead_share == 0.0
    columns = weights.mean(dim=0)
    expected = float((columns * (columns * 3).log()).sum())
    assert report.column_violation == pytest.approx(expected, rel=1e-9)
    # Orthonormal directions: the coordinates move as far as the parameters.
    moved = float((parameters(model) - before).norm())
    assert report.displacement == pytest.approx(moved, rel=1e-10)
    assert report.seconds > 0


@pytest.mark.filterwarnings("ignore::hardstep.errors.DeadRowsWarning")
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("solver", [RowSoftmax(), Sinkhorn()], ids=repr)
@pytest.mark.parametrize("polytope", [Simplex(2), Simplex(8), Orthoplex(3)], ids=repr)
def test_on_a_constant_loss_every_row_is_dead_and_nothing_moves(dtype, solver, polytope):
    model = Net().to(dtype)
    far = {"step_radius": Length(50.0), "rotation": Biased(), "rules": (Momentum(0.9),)}
    opt = tiny(model, solver=solver, polytope=polytope, **far)
    before = parameters(model)
    x, y = (t.to(dtype) for t in batch())
    for _ in range(3):
        assert opt.step(x, y, constant_loss) == pytest.approx(0.7, rel=1e-6)
    assert (opt.report.dead_share, opt.report.spread_max) == (1.0, 0.0)
    assert opt.report.displacement == 0.0
    assert torch.equal(parameters(model), before)


def test_a_dead_row_stays_while_the_others_move():
    tensors = {"used": torch.ones(4).double(), "unused": torch.ones(6).double()}
    opt = tiny(tensors, subspace=Full(), step_radius=Length(30.0))
    opt.step(batched=lambda t: t["used"].sum(dim=1))
    assert opt.report.dead_share == pytest.approx(3 / 5)
    assert torch.equal(tensors["unused"], torch.ones(6).double())
    assert (tensors["used"] < 1).any()


# -- losses that are not finite -----------------------------------------------------------------


PLACES = ([2, 0], [1, 2], [0, 0])  # (2, 1, 0) and (0, 2, 0)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_by_default_a_nonfinite_loss_counts_as_the_worst_of_the_others(value):
    models = {value: Net(), "worst": Net()}
    for name, model in models.items():
        opt = tiny(model)
        proposal = opt.propose()
        losses = opt.evaluate(proposal, *batch(), mse)
        losses[PLACES] = -1.0
        losses[PLACES] = losses.max() if name == "worst" else value
        opt.advance(proposal, losses)
        assert opt.report.nonfinite == (0 if name == "worst" else 2)
        assert math.isfinite(opt.report.loss)
    assert torch.equal(parameters(models[value]), parameters(models["worst"]))


def test_when_no_loss_is_finite_nothing_moves_and_the_loss_is_nan():
    opt = tiny(model := Net())
    loss = opt.step(batched=lambda t: torch.full((len(t["last.bias"]),), math.nan))
    assert math.isnan(loss)
    assert math.isnan(opt.report.loss)
    assert opt.report.nonfinite == opt.evaluations_per_step
    assert torch.equal(parameters(model), parameters(Net()))


def test_the_raise_policy_stops_before_anything_moves_and_says_where():
    opt = tiny(model := Net(), nonfinite="raise", num_probes=2)
    proposal = opt.propose()
    losses = torch.zeros(opt.num_particles, 3, 2)
    losses[3, 0, 1] = losses[1, 2, 0] = math.inf
    with pytest.raises(NonFiniteLossError, match=r"2 losses .* \(1, 2, 0\)") as caught:
        opt.advance(proposal, losses)
    assert (caught.value.count, caught.value.first) == (2, (1, 2, 0))
    assert opt.steps == 0
    assert torch.equal(parameters(model), parameters(Net()))


# -- the model's own weights are the truth ------------------------------------------------------


def test_an_edit_between_steps_is_kept():
    opt = tiny(model := Net())
    opt.step(*batch(), mse)
    coordinates = opt.coordinates
    with torch.no_grad():
        model.first.weight += 1.0
        model.last.bias.fill_(-3.0)
    edited = parameters(model)
    opt.step(*batch(1), mse)
    changes = opt.subspace.expand(opt.coordinates - coordinates)
    assert_close(parameters(model) - edited, in_order(changes, model))
    losses = []
    for start in (edited, parameters(Net())):  # and the losses were those of the edited model
        other = Net()
        nn.utils.vector_to_parameters(start, other.parameters())
        twin = tiny(other)
        twin.load_state_dict(opt.state_dict())
        losses.append(twin.evaluate(twin.propose(), *batch(1), mse))
    assert not torch.equal(*losses)


@pytest.mark.parametrize("when", ["solving", "coasting", "between proposing and advancing"])
def test_parameter_objects_put_in_place_of_others_are_the_ones_that_move(when):
    opt = tiny(model := Net(), rules=(PlanReuse(3 if when == "coasting" else 1),))
    opt.step(*batch(), mse)
    old, kept = model.first.weight, model.first.weight.detach().clone()
    proposal = opt.propose()
    losses = opt.evaluate(proposal, *batch(), mse)
    model.first.weight = nn.Parameter(kept + 0.01)
    if when == "between proposing and advancing":
        opt.advance(proposal, losses)
    else:
        opt.step(*batch(), mse)
    assert opt.report.solved == (when != "coasting")
    assert torch.equal(old, kept)
    assert (model.first.weight - kept - 0.01).abs().max() > 1e-4


def test_weights_loaded_between_steps_are_kept():
    x, y = batch()
    model, other = Net(), Net(seed=9)
    opt = tiny(model)
    opt.step(x, y, mse)
    model.load_state_dict(other.state_dict())
    opt.step(x, y, constant_loss)  # dead: whatever is there stays
    assert torch.equal(parameters(model), parameters(other))


# -- what a step leaves alone -------------------------------------------------------------------


def noisy():
    """Dropout, switched off, and batch normalisation."""
    model = build(
        lambda: nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Dropout(0.3), nn.Linear(4, 2)),
        0,
    ).double()
    model[2].eval()
    return model


@pytest.mark.parametrize("evaluator", [None, Batched(), OneByOne()], ids=repr)
def test_modes_and_buffers_are_as_before_the_step(evaluator):
    opt = tiny(model := noisy(), evaluator=evaluator)
    modes = {name: module.training for name, module in model.named_modules()}
    buffers = {name: buffer.clone() for name, buffer in model.named_buffers()}
    before = parameters(model)
    x, y = batch()
    for call in (lambda: opt.step(x, y, mse), lambda: opt.step(lambda: mse(model(x), y))):
        call()
        assert {name: module.training for name, module in model.named_modules()} == modes
        for name, buffer in model.named_buffers():
            assert torch.equal(buffer, buffers[name]), name
    assert (parameters(model) - before).norm() > 1e-3
    assert all(parameter.grad is None for parameter in model.parameters())
    assert all(parameter.requires_grad for parameter in model.parameters())


def test_the_global_generators_are_neither_used_nor_reset():
    def states():
        return torch.get_rng_state(), np.random.get_state()[1], random.getstate()  # noqa: NPY002

    def run():
        jitter = Jitter(probe=Mollifier(0.1), step=Mollifier(0.1))
        model = noisy().train()
        opt = tiny(model, rotation=Biased(), jitter=jitter, rules=(Momentum(0.5),))
        x, y = batch()
        opt.step(x, y, mse)
        opt.step(lambda: mse(model(x), y))
        return parameters(model)

    before = states()
    first = run()
    after = states()
    assert torch.equal(before[0], after[0])
    assert np.array_equal(before[1], after[1])
    assert before[2] == after[2]
    torch.rand(3)
    assert torch.equal(run(), first)


def test_dropout_masks_are_shared_by_all_probes_of_a_step():
    class Dropped(nn.Linear):
        def forward(self, x):
            return nn.functional.dropout(x, 0.5) + 0 * self.weight.sum()

    opt = tiny(Dropped(2, 2).double())
    x, _ = batch()
    losses = []
    for _ in range(2):
        losses.append(opt.step(x, None, torch.sum))
        assert opt.report.dead_share == 1.0
    assert losses[0] != losses[1]  # the next step has masks of its own


@pytest.mark.parametrize("subspace", [Full(), RowWise(rank=1), LayerWise(1), LowRank(1)], ids=repr)
def test_padding_is_inert(subspace):
    model, (x, y) = Net(), batch()
    opt = tiny(
        model, subspace=subspace, polytope=Simplex(5), rotation=Biased(), rules=(Momentum(0.9),)
    )
    pad = ~opt.particles.real
    assert pad.any()
    for _ in range(3):
        proposal = opt.propose()
        losses = opt.evaluate(proposal, x, y, mse)
        probes = proposal.probes.clone()
        probes[pad[:, None, None, :].expand_as(probes)] = 1e6
        assert torch.equal(opt.evaluate(proposal._replace(probes=probes), x, y, mse), losses)
        opt.advance(proposal, losses)
        saved = opt.state_dict()
        for moved in (saved["coordinates"], saved["previous_move"], saved["rules"][0]["velocity"]):
            assert (moved[pad] == 0).all()
            assert (moved[~pad] != 0).all()


def test_only_trainable_parameters_are_searched():
    model = Net()
    model.first.requires_grad_(requires_grad=False)
    opt = tiny(model)
    opt.step(*batch(), mse)
    assert sorted(opt.tensors) == ["last.bias", "last.weight"]
    assert torch.equal(model.first.weight, Net().first.weight)
    assert not torch.equal(model.last.weight, Net().last.weight)


def test_a_tied_parameter_is_searched_once_and_probed_in_both_places():
    model, (x, _) = build(Tied, 0).double(), batch()
    opt = tiny(model, subspace=Full())
    assert list(opt.tensors) == ["encoder.weight", "encoder.bias", "decoder.bias"]
    proposal = opt.propose()
    losses = opt.evaluate(proposal, x, x, mse)
    for particle, vertex in ((0, 0), (3, 2)):
        weight, inner, outer = parameters_at(opt, proposal, particle, vertex, 0).values()
        expected = mse(torch.tanh(x @ weight.T + inner) @ weight.T + outer, x).item()
        assert losses[particle, vertex, 0].item() == pytest.approx(expected, abs=1e-12)
    opt.advance(proposal, losses)
    assert model.encoder.weight is model.decoder.weight


# -- what a result depends on -------------------------------------------------------------------


def run(**changes):
    jitter = Jitter(probe=Mollifier(0.1), step=Mollifier(0.1))
    opt = tiny(model := Net(), jitter=jitter, **changes)
    for i in range(3):
        opt.step(*batch(i), mse)
    return parameters(model)


def test_the_same_seed_gives_the_same_bits_and_another_seed_others():
    assert torch.equal(run(), run())
    assert (run() - run(seed=8)).norm() > 1e-2


def test_the_memory_budget_changes_no_bit():
    # 32 of these candidates take about 20 kB; all of these budgets hold a tile.
    small = run(evaluator=Batched(memory_budget=1 << 16))
    for budget in (1 << 20, 1 << 33):
        assert torch.equal(run(evaluator=Batched(memory_budget=budget)), small)


@pytest.mark.parametrize(
    "evaluator", [Batched(), Batched(tile=1), Batched(tile=7), OneByOne()], ids=repr
)
def test_tiles_and_evaluators_change_a_result_by_rounding_at_most(evaluator):
    assert_close(run(evaluator=evaluator), run(), 1e-12)


def test_float32_models_follow_float64_ones():
    double, single = Net(), Net().float()
    for model in (double, single):
        opt = tiny(model, subspace=Full(), polytope=Simplex(3))
        proposal = opt.propose()
        x, y = (t.to(proposal.directions.dtype) for t in batch())
        losses = opt.evaluate(proposal, x, y, mse)
        assert losses.dtype == torch.float64
        for index in ((0, 0, 0), (5, 2, 0)):
            at = parameters_at(opt, proposal, *index)
            expected = mse(functional_call(model, at, (x,)), y).item()
            assert losses[index].item() == pytest.approx(expected, rel=1e-5)
        opt.advance(proposal, losses)
        assert all(p.dtype == proposal.directions.dtype for p in model.parameters())


def test_a_quadratic_is_solved():
    model = nn.utils.skip_init(nn.Linear, 4, 1, bias=False, dtype=torch.float64)
    nn.init.zeros_(model.weight)
    x = torch.randn(32, 4, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    truth = torch.tensor([[1.0, -2.0, 0.5, 3.0]]).double()
    opt = PolyStep(
        model,
        subspace=Full(),
        polytope=Orthoplex(4),
        temperature=1e-3,
        step_radius=Length(Linear(0.5, 0.002, 80)),
        probe_radius=Length(0.01),
    )
    for _ in range(100):
        opt.step(x, x @ truth.T, mse)
    assert (model.weight - truth).norm() < 0.02  # from 3.8
