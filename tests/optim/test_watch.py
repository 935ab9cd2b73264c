"""Steps that get nowhere, or are slow, are told of: once per cause, and only then."""

import math
import warnings
from dataclasses import replace

import pytest
import torch
from torch import nn

from hardstep import Batched, Full, Length, OneByOne, PolyStep, RowWise, Simplex
from hardstep.errors import (
    DeadRowsWarning,
    HardstepWarning,
    SlowLossWarning,
    StillLossWarning,
    warn,
)
from hardstep.evaluation import ClosureObjective
from hardstep.nn import build
from hardstep.optim.watch import Watch

from .toys import Net, Scripted, batch, constant_loss, mse, tiny


def said(take, num):
    """The warnings of so many steps, with the step each came at."""
    found = []
    for step in range(1, num + 1):
        with warnings.catch_warnings(record=True) as given:
            warnings.simplefilter("always")
            take()
        found += [(step, warning.category) for warning in given]
    return found


def take(opt, *given, **named):
    return lambda: opt.step(*given, **named)


def test_steps_in_which_nothing_makes_a_difference_are_told_of_once():
    opt = tiny(Net())
    assert said(take(opt, *batch(), constant_loss), 12) == [(3, DeadRowsWarning)]
    other = take(tiny(Net()), *batch(), constant_loss)
    other(), other()
    with pytest.warns(DeadRowsWarning, match=r"^dead: in 3 steps .* loss \(0.7 .*wake\(model, inp"):
        other()


def nearly_dead():
    """Eleven particles, of which one makes a small difference."""
    tensors = {"a": torch.zeros(20), "b": torch.zeros(2)}
    return PolyStep(tensors, subspace=Full(), polytope=Simplex(2))


def almost_constant(stacked):
    return 5 + 0.001 * stacked["b"].sum(1)


def test_steps_in_which_few_particles_see_a_difference_are_told_of_once():
    opt = nearly_dead()
    assert said(take(opt, batched=almost_constant), 12) == [(5, DeadRowsWarning)]
    assert 0.9 < opt.report.dead_share < 1
    opt = nearly_dead()
    for _ in range(4):
        opt.step(batched=almost_constant)
    with pytest.warns(DeadRowsWarning, match=r"^nearly dead: in 5 steps .* at least 90 % of the"):
        opt.step(batched=almost_constant)


def test_words_that_do_not_occur_in_the_batch_are_no_fault():
    model = build(lambda: nn.Sequential(nn.Embedding(60, 4), nn.Flatten(), nn.Linear(12, 2)), 0)
    opt = PolyStep(model, only=["0.*"], subspace=RowWise(1), polytope=Simplex(2))
    words, labels = torch.tensor([[1, 2, 3], [2, 3, 4]]), torch.tensor([0, 1])
    assert said(lambda: opt.step(words, labels, nn.functional.cross_entropy), 8) == []
    assert opt.report.dead_share > 0.9


def test_an_objective_of_the_users_own_is_not_judged():
    class Constant(Scripted):
        def losses(self, candidates):
            return torch.ones(len(candidates))

    assert said(take(nearly_dead(), objective=Constant()), 12) == []


@pytest.mark.parametrize(
    ("losses", "expected"),
    [
        ([2.3] * 9, True),  # never learned anything
        ([2.3, 1.0, 0.1] + [0.1] * 6, False),  # as good as it has ever been, and much better
        ([2.3, 1.0, 0.1] + [2.3] * 6, True),  # died on the way
        ([2.3, 1.0] + [math.nan] * 9, False),  # something else
    ],
)
def test_a_run_that_has_learned_may_come_to_rest(losses, expected):
    opt = tiny(Net())
    opt.step(*batch(), mse)
    watch, objective = Watch(), ClosureObjective(lambda: 0.0)
    reports = iter([replace(opt.report, loss=loss, dead_share=0.9) for loss in losses])
    found = said(lambda: watch.note(next(reports), objective), len(losses))
    assert bool(found) == expected


def test_a_loss_that_does_not_fall_though_probes_differ_is_told_of_once():
    opt = tiny(Net(), step_radius=Length(1e-9))
    assert said(take(opt, *batch(), mse), 110) == [(100, StillLossWarning)]
    falling = tiny(Net(), step_radius=Length(0.01))
    assert said(take(falling, *batch(), mse), 110) == []


READERS = {
    "item": lambda output, target: mse(output, target).item(),
    "float": lambda output, target: float(mse(output, target)),
    "branch": lambda output, target: mse(output, target) if output.sum() > 0 else output.mean(),
}


@pytest.mark.parametrize("name", READERS)
@pytest.mark.parametrize("evaluator", [None, Batched()], ids=["incremental", "batched"])
def test_a_loss_that_reads_values_is_told_of_once_with_what_to_write(name, evaluator):
    opt = tiny(Net(), evaluator=evaluator)
    assert said(take(opt, *batch(), READERS[name]), 3) == [(1, SlowLossWarning)]
    with pytest.warns(SlowLossWarning, match=r"one by one.*return the loss as a tensor.*where\("):
        tiny(Net()).step(*batch(), READERS[name])


def test_what_is_one_by_one_by_choice_or_leaves_torch_for_good_is_not_told_of():
    opt = tiny(Net(), evaluator=OneByOne())
    assert said(take(opt, *batch(), READERS["item"]), 1) == []
    numpy = tiny(Net())
    by_array = take(numpy, *batch(), lambda output, target: float(output.numpy().sum()))
    assert said(by_array, 1) == []


def test_warnings_name_the_line_that_called_and_can_be_silenced_together():
    with pytest.warns(HardstepWarning) as given:
        warn(DeadRowsWarning, "text")
    assert given[0].filename == __file__
    model = nn.Linear(3, 2).double()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", HardstepWarning)
        opt = PolyStep(model)
        for _ in range(3):
            opt.step(*batch(), constant_loss)
