import math
from itertools import accumulate

import pytest
import torch

from hardstep.errors import ConfigError
from hardstep.geometry import Biased, Jitter, Mollifier
from hardstep.optim import (
    Absorb,
    AdaptiveProbes,
    FullDecay,
    Momentum,
    PlanReuse,
    Rule,
    Settings,
    WeightDecay,
    WeightMomentum,
)
from hardstep.schedules import Linear
from hardstep.solvers import Sinkhorn
from hardstep.subspaces import Adaptive, Full, LayerWise, LowRank, RowWise

from .toys import Net, Scripted, batch, constant_loss, flat, moves, mse, parameters, tiny


def travel(steps, objective=None, **changes):
    """The moves of a scripted run, one vector of parameters per step, and its optimizer."""
    opt = tiny(model := Net(), **changes)
    positions = [parameters(model)]
    for _ in range(steps):
        opt.step(objective=objective or Scripted())
        positions.append(parameters(model))
    return moves(positions), opt


def assert_moves(actual, expected):
    for got, wanted in zip(actual, expected, strict=True):
        torch.testing.assert_close(got, wanted, rtol=0, atol=1e-12)


@pytest.fixture(scope="module")
def raw():
    """Nine barycentres, which under `Scripted` are the same whatever the rules do."""
    return travel(9)[0]


def test_barycentres_of_a_scripted_objective_do_not_depend_on_where_the_run_is(raw):
    opt = tiny(shifted := Net(seed=4))
    before = parameters(shifted)
    opt.step(objective=Scripted())
    assert_moves([parameters(shifted) - before], raw[:1])
    assert min(float(move.norm()) for move in raw) > 0.1


# -- momentum -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("beta", "betas"),
    [
        (0.7, [0.7] * 9),
        (0.0, [0.0] * 9),
        (Linear(0.3, 0.5, steps=4), [0.3, 0.35, 0.4, 0.45, 0.5, 0.5]),
    ],
    ids=["constant", "none", "scheduled"],
)
def test_momentum_adds_the_faded_velocity_to_every_barycentre(raw, beta, betas):
    velocity, expected = torch.zeros_like(raw[0]), []
    for now, move in zip(betas, raw, strict=False):
        velocity = now * velocity + move
        expected.append(velocity)
    assert_moves(travel(len(betas), rules=(Momentum(beta),))[0], expected)


# -- weight decay -------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore::hardstep.errors.DeadRowsWarning")
@pytest.mark.parametrize("subspace", [Full(), RowWise(rank=1), LayerWise(rank=1)], ids=repr)
def test_on_a_constant_loss_decay_shrinks_what_the_search_reaches_and_nothing_else(subspace):
    opt = tiny(Net(), subspace=subspace, rules=(WeightDecay(0.1),))

    def split():
        inside = opt.subspace.project(opt.tensors)
        reached = opt.subspace.expand(inside)
        outside = [tensor.detach() - reached[name] for name, tensor in opt.tensors.items()]
        return inside, torch.cat([rest.reshape(-1) for rest in outside])

    inside, outside = split()
    for at in range(1, 6):
        opt.step(*batch(at), constant_loss)
        now, rest = split()
        torch.testing.assert_close(now, 0.9**at * inside, rtol=1e-12, atol=1e-14)
        torch.testing.assert_close(rest, outside, rtol=0, atol=1e-14)
    if subspace != Full():
        assert outside.norm() > 0.1


@pytest.mark.filterwarnings("ignore::hardstep.errors.DeadRowsWarning")
def test_a_scheduled_decay_is_read_at_the_current_step():
    opt = tiny(model := Net(), subspace=Full(), rules=(WeightDecay(Linear(0.1, 1.3, steps=3)),))
    expected = parameters(model)
    for rate in (0.1, 0.5, 0.9):
        opt.step(*batch(), constant_loss)
        expected = expected * (1 - rate)
        torch.testing.assert_close(parameters(model), expected, rtol=0, atol=1e-12)


def test_rules_are_applied_in_the_order_given():
    theta = parameters(Net())
    inner, outer = (
        travel(2, subspace=Full(), rules=rules)[0]
        for rules in ((WeightDecay(0.1), Momentum(0.5)), (Momentum(0.5), WeightDecay(0.1)))
    )
    raw, _ = travel(2, subspace=Full())
    # Decay before momentum enters the velocity, decay after it does not.
    first = raw[0] - 0.1 * theta
    second = raw[1] - 0.1 * (theta + first)
    assert_moves(inner, [first, 0.5 * first + second])
    assert_moves(outer, [first, 0.5 * raw[0] + second])


# -- plan reuse ---------------------------------------------------------------------------------


def averages(solved_moves, ema):
    """E after each solve."""
    return list(accumulate(solved_moves, lambda average, move: ema * average + (1 - ema) * move))


@pytest.mark.parametrize("ema", [0.7, 0.2])
def test_plan_reuse_solves_every_third_step_and_coasts_along_a_fading_average_between(raw, ema):
    objective = Scripted()
    made, opt = travel(9, objective, rules=(PlanReuse(3, ema=ema),))
    first, second, third = averages([raw[0], raw[3], raw[6]], ema)
    coasts = [(2 / 3 * e, 1 / 3 * e) for e in (first, second, third)]
    assert_moves(made, [raw[0], *coasts[0], raw[3], *coasts[1], raw[6], *coasts[2]])
    price = opt.evaluations_per_step
    assert objective.calls == [price, 1, 1] * 3
    assert opt.evaluations == 3 * price + 6
    report = opt.report
    assert (report.solved, report.evaluations, report.loss) == (False, 1, 0.0)
    assert math.isnan(report.spread_max)
    assert math.isnan(report.dead_share)
    assert report.displacement == pytest.approx(float(coasts[2][1].norm()), rel=1e-10)


def test_reuse_over_one_step_is_no_reuse(raw):
    made, opt = travel(4, rules=(PlanReuse(1),))
    assert_moves(made, raw[:4])
    assert opt.evaluations == 4 * opt.evaluations_per_step


@pytest.mark.parametrize(("growth", "forced"), [(1.49, False), (1.51, True), (math.nan, True)])
def test_a_solve_is_forced_when_the_loss_has_grown_by_half(growth, forced):
    opt = tiny(Net(), rules=(PlanReuse(3),))
    solved = opt.step(objective=Scripted())
    assert solved > 0
    loss = opt.step(objective=Scripted(here=growth * solved))
    assert opt.report.solved is forced
    if forced:
        assert opt.report.evaluations == opt.evaluations_per_step + 1
        # The forced solve is the new yardstick.
        opt.step(objective=Scripted(here=1.49 * loss))
        assert not opt.report.solved


def test_for_a_negative_loss_growth_is_measured_by_its_size():
    class Negative(Scripted):
        def losses(self, candidates):
            return super().losses(candidates) - (10.0 if len(candidates) > 1 else 0.0)

    for here, forced in ((-5.5, False), (-4.0, True)):
        opt = tiny(Net(), rules=(PlanReuse(3),))
        assert opt.step(objective=Negative()) == pytest.approx(-9.6, abs=0.3)
        opt.step(objective=Negative(here))
        assert opt.report.solved is forced


def test_a_forced_solve_enters_the_average_and_the_rhythm_stays(raw):
    opt = tiny(model := Net(), rules=(PlanReuse(3, ema=0.7),))
    positions = [parameters(model)]
    for here in (0.0, 9.0, 0.0, 0.0, 0.0):
        opt.step(objective=Scripted(here))
        positions.append(parameters(model))
    _, average, later = averages([raw[0], raw[1], raw[3]], 0.7)
    assert_moves(moves(positions), [raw[0], raw[1], average / 3, raw[3], 2 / 3 * later])


@pytest.mark.parametrize("momentum_first", [False, True])
def test_momentum_rests_while_a_plan_is_reused_and_ahead_of_it_enters_the_average(
    raw, momentum_first
):
    reuse, momentum = PlanReuse(3, ema=0.7), Momentum(0.5)
    made, _ = travel(5, rules=(momentum, reuse) if momentum_first else (reuse, momentum))
    velocity = 0.5 * raw[0] + raw[3]
    later = 0.7 * raw[0] + 0.3 * (velocity if momentum_first else raw[3])
    assert_moves(made, [raw[0], 2 / 3 * raw[0], raw[0] / 3, velocity, 2 / 3 * later])


def test_proposing_is_always_a_full_solve():
    opt = tiny(Net(), rules=(PlanReuse(3),))
    opt.step(objective=Scripted())
    proposal = opt.propose()
    assert proposal.evaluations == opt.evaluations_per_step
    opt.advance(proposal, opt.evaluate(proposal, objective=Scripted()))
    assert opt.report.solved


# -- absorb -------------------------------------------------------------------------------------


def test_absorbing_clears_everything_remembered_after_every_third_step():
    rules = (PlanReuse(2), Momentum(0.5), Absorb(3))
    opt = tiny(model := Net(), rotation=Biased(), solver=Sinkhorn(), rules=rules)
    for at in range(7):
        before = parameters(model)
        opt.step(objective=Scripted())
        assert (parameters(model) - before).norm() > 0.1
        saved = opt.state_dict()
        remembered = [opt.coordinates, saved["previous_move"]]
        remembered += [saved["rules"][0]["average"], saved["rules"][1]["velocity"]]
        empty = [not memory.any() for memory in remembered]
        assert empty == [at in (2, 5)] * 4, at
        assert (saved["potentials"] == []) == (at in (2, 5)), at
        assert bool(saved["rules"][0]["loss"].isnan()) == (at in (2, 5))
        assert (opt.steps, len(saved["rules"])) == (at + 1, 3)


@pytest.mark.parametrize("subspace", [RowWise(1), Adaptive(1, every=3), LowRank(1)], ids=repr)
def test_absorbing_changes_no_parameter(subspace):
    plain, _ = travel(7, subspace=subspace)
    assert_moves(travel(7, subspace=subspace, rules=(Absorb(2),))[0], plain)


def test_momentum_starts_afresh_after_an_absorb(raw):
    made, _ = travel(4, rules=(Momentum(0.5), Absorb(2)))
    assert_moves(made, [raw[0], 0.5 * raw[0] + raw[1], raw[2], 0.5 * raw[2] + raw[3]])


def test_a_basis_that_is_redrawn_makes_the_rules_forget_too():
    # In coordinates a scripted barycentre is the same in every basis.
    states = []
    for rules in ((), (Momentum(0.5),)):
        _, opt = travel(3, subspace=Adaptive(1, every=2), rules=rules)
        assert int(opt.subspace.state_dict()["redraws"]) == 1
        states.append(opt.state_dict())
    plain, moving = states
    velocity = moving["rules"][0]["velocity"]
    torch.testing.assert_close(velocity, plain["previous_move"], rtol=0, atol=1e-12)


# -- momentum of the weights --------------------------------------------------------------------


def test_with_fixed_directions_momentum_of_the_weights_is_momentum(raw):
    actual, _ = travel(9, rules=(WeightMomentum(0.7),))
    expected, _ = travel(9, rules=(Momentum(0.7),))
    assert_moves(actual, expected)
    assert float((actual[-1] - raw[-1]).norm()) > 0.1


def test_momentum_of_the_weights_outlives_a_redraw_and_an_absorb_ends_it():
    redrawn = RowWise(rank=1, redraw=2)
    plain, _ = travel(9, subspace=redrawn)
    kept, _ = travel(9, subspace=redrawn, rules=(WeightMomentum(Linear(0.5, 0.9, 9)),))
    velocity, expected = torch.zeros_like(plain[0]), []
    for step, move in enumerate(plain):
        velocity = (0.5 + 0.4 * step / 9) * velocity + move
        expected.append(velocity)
    assert_moves(kept, expected)
    ended, _ = travel(9, subspace=redrawn, rules=(WeightMomentum(0.9), Absorb(1)))
    assert_moves(ended, plain)


# -- decay of whole weights ---------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore::hardstep.errors.DeadRowsWarning")
def test_full_decay_shrinks_every_matrix_and_no_vector_also_where_nothing_is_searched():
    opt = tiny(
        model := Net(), subspace=RowWise(rank=1, redraw=1), rules=(FullDecay(Linear(0.1, 0.3, 2)),)
    )
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    for _ in range(3):
        opt.step(*batch(), constant_loss)
    kept = 0.9 * 0.8 * 0.7
    assert {tensor.dim() for tensor in before.values()} == {1, 2}
    for name, tensor in model.state_dict().items():
        expected = (kept if tensor.dim() > 1 else 1.0) * before[name]
        torch.testing.assert_close(tensor, expected, rtol=1e-12, atol=1e-14)


def test_momentum_adds_up_a_decay_that_comes_before_it():
    shrunk = []
    for rules in ((WeightMomentum(0.5), FullDecay(0.1)), (FullDecay(0.1), WeightMomentum(0.5))):
        opt = tiny(model := Net(), rules=rules)
        for _ in range(2):
            opt.step(*batch(), constant_loss)
        weights, start = (
            flat({n: p for n, p in net.named_parameters() if p.dim() > 1}) for net in (model, Net())
        )
        shrunk.append(float(weights.norm() / start.norm()))
    assert shrunk == pytest.approx([0.9**2, 0.9 - 0.5 * 0.1 - 0.1 * 0.9], rel=1e-12)


def test_the_factors_of_a_low_rank_subspace_follow_the_weights():
    opt = tiny(model := Net(), subspace=LowRank(1), rules=(Momentum(0.5), Absorb(2)))

    def product():
        factors = opt.subspace.state_dict()
        return factors["left.first.weight"] @ factors["right.first.weight"].T

    before = model.first.weight.detach() - product()
    for i in range(5):
        opt.step(*batch(i), mse)
        now = model.first.weight.detach() - product()
        torch.testing.assert_close(now, before, rtol=0, atol=1e-12)
    assert (model.first.weight - Net().first.weight).norm() > 0.1


# -- adaptive probes ----------------------------------------------------------------------------


class SomeSteady(Scripted):
    """Rows 1 and 4 cost the same at every step, the others never do."""

    def __init__(self):
        super().__init__()
        self.asked = []

    def losses(self, candidates):
        losses = super().losses(candidates).reshape(len(candidates.asked), -1)
        always = torch.linspace(0.2, 0.9, losses.shape[1]).double()
        for row, particle in enumerate(candidates.asked.tolist()):
            if particle in (1, 4):
                losses[row] = always * (1 + particle)
        self.asked.append(candidates.asked.tolist())
        return losses.flatten()


@pytest.mark.parametrize("max_age", [1, 3])
def test_unchanged_rows_are_not_asked_about_for_max_age_steps(max_age):
    objective = SomeSteady()
    _, opt = travel(10, objective, rules=(AdaptiveProbes(max_age=max_age),))
    everyone = list(range(opt.num_particles))
    rest = [row for row in everyone if row not in (1, 4)]
    # Two evaluations show that a row is steady; then it rests, and is looked at once more.
    rhythm = [everyone, *[everyone, *[rest] * max_age] * 10]
    assert objective.asked == rhythm[:10]
    assert opt.evaluations == sum(map(len, objective.asked)) * 3
    assert opt.report.evaluations == len(objective.asked[-1]) * 3


def test_a_reused_row_keeps_its_directions_and_losses_and_moves_along_them():
    opt = tiny(Net(), rules=(AdaptiveProbes(max_age=2),))
    objective = SomeSteady()
    opt.step(objective=objective)
    measured = opt.propose()
    losses = opt.evaluate(measured, objective=objective)
    opt.advance(measured, losses)
    for _ in range(2):
        reused = opt.propose()
        steady, rest = [1, 4], [row for row in range(opt.num_particles) if row not in (1, 4)]
        assert reused.rows.tolist() == rest
        assert torch.equal(reused.directions[steady], measured.directions[steady])
        assert torch.equal(reused.targets[steady], measured.targets[steady])
        assert (reused.directions[rest] - measured.directions[rest]).abs().amin(0).max() > 1e-3
        again = opt.evaluate(reused, objective=objective)
        assert torch.equal(again[steady], losses[steady])
        opt.advance(reused, again)
    assert opt.propose().rows.tolist() == list(range(opt.num_particles))


def test_where_no_row_is_steady_adaptive_probes_change_no_bit():
    results = []
    for rules in ((), (AdaptiveProbes(tolerance=0.0),)):
        opt = tiny(model := Net(), rules=rules)
        for i in range(5):
            opt.step(*batch(i), mse)
        assert opt.evaluations == 5 * opt.evaluations_per_step
        results.append(parameters(model))
    assert torch.equal(*results)


@pytest.mark.filterwarnings("ignore::hardstep.errors.DeadRowsWarning")
def test_on_a_constant_loss_adaptive_probes_stop_asking():
    opt = tiny(Net(), rules=(AdaptiveProbes(max_age=3),))
    asked = []
    for i in range(7):
        opt.step(*batch(i), constant_loss)
        asked.append(opt.report.evaluations // 3)
    assert asked == [10, 10, 0, 0, 0, 10, 0]


def test_the_tolerance_is_relative_to_the_mean_loss():
    class Creeping(Scripted):
        def losses(self, candidates):
            return torch.full((len(candidates),), 200.0 * 1.001 ** len(self.calls)).double()

    for tolerance, reused in ((2e-3, True), (5e-4, False)):
        opt = tiny(Net(), rules=(AdaptiveProbes(tolerance),))
        objective = Creeping()
        for call in range(3):
            objective.calls = [0] * call
            opt.step(objective=objective)
        assert (opt.report.evaluations == 0) is reused


def test_rows_with_losses_that_are_not_finite_are_asked_about_again():
    class Failing(Scripted):
        def losses(self, candidates):
            return torch.full((len(candidates),), math.nan)

    _, opt = travel(4, Failing(), rules=(AdaptiveProbes(),))
    assert opt.evaluations == 4 * opt.evaluations_per_step
    assert opt.report.nonfinite == opt.evaluations_per_step


# -- refusals -----------------------------------------------------------------------------------


@pytest.mark.parametrize("rule", [PlanReuse(3), AdaptiveProbes()], ids=repr)
@pytest.mark.parametrize("which", ["probe", "step"])
def test_rules_that_reuse_are_refused_together_with_jitter(rule, which):
    name = type(rule).__name__
    with pytest.raises(ConfigError, match=f"{name} cannot be combined with jitter.* drop one"):
        Settings(jitter=Jitter(**{which: Mollifier(0.05)}), rules=(Momentum(0.5), rule))


def test_a_kind_of_rule_may_appear_once():
    with pytest.raises(ConfigError, match="each kind may appear once, got Momentum, Momentum"):
        Settings(rules=(Momentum(0.5), Momentum(0.9)))


BAD = {
    r"Momentum: beta must be in \[0, 1\), got 1.0": lambda: Momentum(1.0),
    r"Momentum: beta must be in \[0, 1\), got -0.1": lambda: Momentum(-0.1),
    r"WeightDecay: rate must be in \[0, 1\), got 2": lambda: WeightDecay(2),
    r"FullDecay: rate must be in \[0, 1\), got -0.1": lambda: FullDecay(-0.1),
    r"FullDecay: rate must be in \[0, 1\), got 1.0": lambda: FullDecay(1.0),
    "PlanReuse: every must be a whole number >= 1, got 0": lambda: PlanReuse(0),
    r"PlanReuse: ema must be in \[0, 1\), got 1.0": lambda: PlanReuse(3, ema=1.0),
    "PlanReuse: limit must be > 1, got 1.0": lambda: PlanReuse(3, limit=1.0),
    "Absorb: every must be a whole number >= 1, got 0": lambda: Absorb(0),
    "AdaptiveProbes: tolerance must be .* >= 0 and finite, got -1": lambda: AdaptiveProbes(-1),
    "AdaptiveProbes: max_age must be a whole number >= 1, got 0": lambda: AdaptiveProbes(max_age=0),
}


@pytest.mark.parametrize("sentence", BAD)
def test_rules_out_of_range_are_refused_with_a_sentence(sentence):
    with pytest.raises(ConfigError, match=sentence):
        BAD[sentence]()


@pytest.mark.parametrize(
    ("rule", "step", "sentence"),
    [
        (Momentum(Linear(0.5, 1.0, steps=2)), 2, r"beta at step 2 must be in \[0, 1\), got 1.0"),
        (WeightDecay(Linear(0.1, 1.3, steps=3)), 3, r"rate at step 3 must be in \[0, 1\), got 1.3"),
        (FullDecay(lambda step: -0.1), 0, r"FullDecay: rate at step 0 must be in \[0, 1\)"),
        (FullDecay(lambda step: 1.0), 0, r"FullDecay: rate at step 0 must be in \[0, 1\)"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_scheduled_rate_out_of_range_is_refused_at_its_step(rule, step, sentence):
    _, opt = travel(step, rules=(rule,))
    with pytest.raises(ConfigError, match=sentence):
        opt.step(objective=Scripted())


def test_a_users_rule_is_a_subclass_with_a_state():
    class Clip(Rule):
        """Moves of unit length at most, counting how many were longer."""

        def init(self, move):
            return {"clipped": torch.tensor(0)}

        def shape(self, move, state, context):
            length = float(move.norm())
            return move / max(1.0, length / 0.05), {"clipped": state["clipped"] + (length > 0.05)}

    made, opt = travel(3, rules=(Clip(),), subspace=Full())
    assert [float(move.norm()) for move in made] == pytest.approx([0.05] * 3, rel=1e-12)
    assert opt.state_dict()["rules"][0]["clipped"].item() == 3
    assert flat(opt.tensors).isfinite().all()
