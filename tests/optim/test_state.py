"""A run that is saved and loaded at every step is the run that never stopped, bit for bit."""

import math
from functools import partial
from itertools import chain, combinations

import pytest
import torch

from hardstep.errors import CheckpointError
from hardstep.geometry import Biased, Haar, Jitter, Mollifier
from hardstep.optim import (
    Absorb,
    AdaptiveProbes,
    Momentum,
    PlanReuse,
    Settings,
    WeightDecay,
    WeightMomentum,
)
from hardstep.optim.settings import describe, list_differences
from hardstep.schedules import Cosine, Length, Linear
from hardstep.solvers import Blockwise, Penalized, RowSoftmax, Sinkhorn, Standardized
from hardstep.subspaces import (
    Adaptive,
    Full,
    LayerWise,
    LowRank,
    PerTensor,
    RowWise,
    Scaled,
    Sketch,
)

from .toys import Net, batch, mse, parameters, staircase, through_disk, tiny

STEPS = 8
RULES = (
    Momentum(Linear(0.3, 0.9, STEPS)),
    WeightDecay(0.01),
    PlanReuse(3),
    Absorb(5),
    # Losses of two batches differ by less than this, so that rows are reused now and then.
    AdaptiveProbes(tolerance=0.2, max_age=2),
)
# Of every four rules, each combination of present and absent is among these.
SUBSETS = list(chain.from_iterable(combinations(RULES, size) for size in (0, 2, 4)))


def same(left, right):
    """Equality of nested states, tensors compared bit for bit."""
    if isinstance(left, torch.Tensor):
        nowhere = torch.equal(left.isnan(), right.isnan())
        everywhere = torch.equal(left.nan_to_num(), right.nan_to_num())
        return left.dtype == right.dtype and nowhere and everywhere
    if isinstance(left, dict):
        return left.keys() == right.keys() and all(same(left[k], right[k]) for k in left)
    if isinstance(left, list):
        return len(left) == len(right) and all(map(same, left, right))
    return left == right


def assert_survives_interruption(changes, activation=staircase, dtype=torch.float64):
    """One model trains in one go; the other is rebuilt from its saved state before each step."""
    whole, current = Net(activation).to(dtype), Net(activation).to(dtype)
    opt = tiny(whole, **changes)
    saved_model, saved = through_disk(current.state_dict()), through_disk(opt.state_dict())
    for at in range(STEPS):
        x, y = (t.to(dtype) for t in batch(at % 3))
        expected = opt.step(x, y, mse)
        current = Net(activation, seed=50 + at).to(dtype)  # other weights, until they are loaded
        current.load_state_dict(saved_model)
        resumed = tiny(current, **changes)
        resumed.load_state_dict(saved)
        assert resumed.steps == at
        assert resumed.step(x, y, mse) == expected, at
        assert torch.equal(parameters(current), parameters(whole)), at
        assert (resumed.report.solved, resumed.evaluations) == (opt.report.solved, opt.evaluations)
        saved_model, saved = through_disk(current.state_dict()), through_disk(resumed.state_dict())
        assert same(saved, opt.state_dict()), at
    assert (parameters(whole) - parameters(Net(activation).to(dtype))).norm() > 0.1
    return opt


@pytest.mark.slow
@pytest.mark.parametrize(
    "rules", SUBSETS, ids=lambda rules: "+".join(type(r).__name__ for r in rules)
)
def test_every_combination_of_four_rules_survives_interruption(rules):
    opt = assert_survives_interruption({"rules": rules, "rotation": Biased()})
    if any(isinstance(rule, AdaptiveProbes | PlanReuse) for rule in rules):
        assert opt.evaluations < STEPS * opt.evaluations_per_step  # something was reused


class Halving:
    """A schedule that is no dataclass."""

    def __init__(self, start):
        self.start = start

    def __call__(self, step):
        return self.start / 2**step


CONFIGURATIONS = {
    "haar": {"rotation": Haar()},
    "jitter": {"jitter": Jitter(Mollifier(0.2), Mollifier(0.2))},
    "schedules": {"temperature": Cosine(1.0, 0.1, STEPS), "step_radius": Length(Linear(1, 0.1, 9))},
    "own schedules": {"temperature": Halving(2.0), "step_radius": Length(Halving(3.0))},
    "warm sinkhorn": {"solver": Sinkhorn(max_iterations=3, tolerance=1e-12)},
    "warm anderson": {"solver": Sinkhorn(max_iterations=3, tolerance=1e-12, anderson=2)},
    "warm penalized": {"solver": Penalized(0.3, max_iterations=2, tolerance=1e-12)},
    "warm blocks": {"solver": Blockwise(Sinkhorn(max_iterations=3, tolerance=1e-12))},
    "standardized": {"solver": Standardized(RowSoftmax())},
    "full": {"subspace": Full()},
    "layers": {"subspace": LayerWise(1)},
    "adaptive": {"subspace": Adaptive(1, every=5), "rules": (Momentum(0.5),)},
    "low rank": {"subspace": LowRank(1), "rotation": Biased(), "rules": (Momentum(0.5),)},
    "momentum of weights": {"subspace": RowWise(1, redraw=2), "rules": (WeightMomentum(0.9),)},
    "sketch": {"subspace": Sketch(RowWise(2)), "rules": (WeightMomentum(0.5),)},
    "sketch of turns": {"subspace": Sketch(RowWise(2, redraw=2, share=0.5))},
    "per tensor": {"subspace": PerTensor({"*weight": RowWise(1, redraw=2), "*": Adaptive(1, 3)})},
    "scaled": {"subspace": Scaled(RowWise(1, redraw=2), 0.5)},
    "low rank, absorbed": {"subspace": LowRank(1), "rules": (WeightDecay(0.1), Absorb(4))},
}


@pytest.mark.slow
@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_every_part_with_a_memory_survives_interruption(name):
    assert_survives_interruption(CONFIGURATIONS[name], activation=torch.tanh)


def test_float32_runs_survive_interruption():
    assert_survives_interruption({"rules": (Momentum(0.5),)}, torch.tanh, torch.float32)


def test_a_truncated_sinkhorn_needs_its_potentials_to_go_on():
    # Otherwise the warm cases above would pass without saving anything.
    changes = CONFIGURATIONS["warm sinkhorn"]
    models = [Net(), Net()]
    opts = [tiny(model, **changes) for model in models]
    for opt in opts:
        opt.step(*batch(), mse)
    opts[1].load_state_dict(opts[1].state_dict() | {"potentials": []})
    for opt in opts:
        opt.step(*batch(1), mse)
    assert not torch.equal(*map(parameters, models))


@pytest.mark.parametrize("name", ["low rank", "adaptive", "warm sinkhorn", "warm blocks"])
def test_a_saved_state_stays_as_it_is_and_can_be_loaded_back_into_a_later_optimizer(name):
    opt = tiny(model := Net(), **CONFIGURATIONS[name])
    opt.step(*batch(), mse)
    weights, saved = through_disk(model.state_dict()), opt.state_dict()
    copy, runs = through_disk(saved), []
    for attempt in range(2):
        if attempt:
            model.load_state_dict(weights)
            opt.load_state_dict(saved)
        for i in range(6):
            opt.step(*batch(i), mse)
        assert same(saved, copy)
        runs.append(parameters(model))
    assert torch.equal(*runs)


# -- refusals -----------------------------------------------------------------------------------


def saved_state(**changes):
    opt = tiny(Net(), **changes)
    opt.step(*batch(), mse)
    return opt.state_dict()


def changed(**changes):
    """A state with other parts, or without those that are None."""
    saved = saved_state() | changes
    return {name: part for name, part in saved.items() if part is not None}


REFUSED = {
    r"other settings \(saved → now: temperature: 0.3 → 0.2\); build the optimizer": (
        lambda: saved_state(temperature=0.3)
    ),
    r"other settings \(saved → now: rules: \[Momentum\(beta=0.5\)\] → \[\]\); build": (
        lambda: saved_state(rules=(Momentum(0.5),))
    ),
    "saved with seed 8, this one has 7; build it with seed=8": lambda: saved_state(seed=8),
    "has format 99, this version reads 3": lambda: saved_state() | {"format": 99},
    "has format None, this version reads 3": dict,
    r"has particles \(4, 2\), this model needs \(10, 2\)": (
        lambda: tiny(torch.nn.Linear(3, 2).double()).state_dict()
    ),
    "has no 'step'; load what state_dict": lambda: changed(step=None),
    "'step' must be a whole number >= 0, got nan; load what": lambda: changed(step=math.nan),
    "'evaluations' must be a whole number >= 0, got -1": lambda: changed(evaluations=-1),
    r"'coordinates' must be a tensor of numbers, got \[\]": lambda: changed(coordinates=[]),
    r"'coordinates' must be .*, got a Tensor of shape \(10, 2\), complex64": lambda: changed(
        coordinates=torch.zeros(10, 2, dtype=torch.complex64)
    ),
    r"'previous_move' must be .*, got a Tensor .*, sparse_coo": lambda: changed(
        previous_move=torch.zeros(10, 2).to_sparse()
    ),
    r"previous_move must be a tensor \(10, 2\) of numbers, got a tensor \(2,\) of numbers": (
        lambda: changed(previous_move=torch.zeros(2))
    ),
    "has 1 rules, this optimizer 0": lambda: changed(rules=[{}]),
    "'statistics' must be a list of 11 numbers, got": lambda: changed(statistics=[1.0]),
    "subspace 'a' must be a tensor, got 'b'": lambda: changed(subspace={"a": "b"}),
    r"its subspace is not the one of this optimizer \(ConfigError: .* keeps no state": (
        lambda: changed(subspace={"a": torch.zeros(1)})
    ),
}


@pytest.mark.parametrize("sentence", REFUSED)
def test_a_state_that_does_not_belong_here_is_refused_and_nothing_changes(sentence):
    opt = tiny(Net())
    before = opt.state_dict()
    with pytest.raises(CheckpointError, match=sentence):
        opt.load_state_dict(REFUSED[sentence]())
    assert same(opt.state_dict(), before)


@pytest.mark.parametrize("name", ["adaptive", "momentum of weights"])
@pytest.mark.parametrize("value", [None, torch.tensor(math.nan), torch.zeros(3)])
def test_what_a_subspace_keeps_is_checked(name, value):
    opt = tiny(Net(), **CONFIGURATIONS[name])
    saved = opt.state_dict()
    del saved["subspace"]["redraws"]
    saved["subspace"] |= {} if value is None else {"redraws": value}
    with pytest.raises(CheckpointError, match="optimizer state: .*subspace"):
        opt.load_state_dict(saved)


def test_only_the_innermost_fields_that_differ_are_named():
    saved = Settings(
        step_radius=Length(Cosine(0.25, 0.0075, 4)), rules=(Momentum(0.5), WeightDecay(0.1))
    )
    now = Settings(
        step_radius=Length(Cosine(0.25, 0.0075, 12)), rules=(Momentum(0.9), WeightDecay(0.1))
    )
    assert list_differences(describe(saved), describe(now)) == [
        "step_radius.value.steps: 4 → 12",
        "rules[0].beta: 0.5 → 0.9",
    ]
    assert list_differences("A(x=1, y=B(z=2))", "A(y=B(z=3))") == ["x: 1 → absent", "y.z: 2 → 3"]
    assert list_differences("A(x=1)", "B(x=1)") == ["settings: A(x=1) → B(x=1)"]


def power(base, step):
    return base**-step


def test_settings_with_schedules_of_any_kind_have_a_text_that_other_processes_share():
    for make, other in (
        (lambda: Halving(2.0), Halving(3.0)),
        (lambda: partial(power, 2.0), partial(power, 3.0)),
        (lambda: partial(power, base=2.0), partial(power, base=3.0)),
        (lambda: power, Halving(2.0)),
        (lambda: Cosine(1.0, 0.1, 5), Cosine(1.0, 0.1, 6)),
    ):
        text = describe(Settings(temperature=make()))
        assert text == describe(Settings(temperature=make()))
        assert text != describe(Settings(temperature=other))
        assert " at 0x" not in text


def test_settings_of_any_length_are_shown_by_their_ends():
    opt = tiny(Net())
    saved = opt.state_dict() | {"settings": "x" * 100_000}
    with pytest.raises(CheckpointError, match="saved with other settings") as refusal:
        opt.load_state_dict(saved)
    assert len(str(refusal.value)) < 2000
