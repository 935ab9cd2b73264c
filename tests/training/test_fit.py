import math
import os
import signal

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import hardstep
from hardstep.errors import (
    CheckpointError,
    ConfigError,
    DataError,
    DeadRowsWarning,
    ObjectiveError,
)
from hardstep.training import ACCURACY, Callback, EarlyStopping, Metric, Validation, checkpoints
from tests.training.small import batches, examples, model, optimizer, weights


class Spy(Callback):
    def __init__(self, interrupt_at=None):
        self.steps, self.scores, self.messages, self.ended = [], [], [], 0
        self.interrupt_at = interrupt_at

    def on_step(self, run, report):
        self.steps.append(run.step)
        if run.step == self.interrupt_at:
            os.kill(os.getpid(), signal.SIGINT)

    def on_validation(self, run, score):
        self.scores.append(score)

    def on_message(self, text):
        self.messages.append(text)

    def on_end(self, run):
        self.ended += 1


def fitted(train=None, seed=0, **options):
    net = model()
    result = hardstep.fit(net, train or batches(), optimizer=optimizer(net, seed=seed), **options)
    return net, result


def scripted(values, every=1):
    """A validation whose scores, the higher the better, are known beforehand."""
    values = iter(values)
    metric = Metric("scripted", lambda *_: torch.tensor(next(values)), higher_is_better=True)
    return Validation(batches(num=32), metric, every=every)


def test_a_staircase_network_learns_two_clusters():
    net, result = fitted(epochs=20, valid=Validation(batches(), ACCURACY))
    assert result.best.value >= 0.95
    assert result.stopped == "finished"
    assert result.steps == 60


def test_epochs_steps_and_seconds_each_limit_a_run():
    assert fitted(epochs=2)[1].steps == 6
    assert fitted(steps=4)[1].steps == 4
    assert fitted(epochs=2, steps=4)[1].steps == 4
    assert fitted(seconds=1e-9)[1].steps == 0
    with pytest.raises(ConfigError, match="needs a limit"):
        fitted()


def test_the_model_ends_with_the_weights_of_the_best_validation():
    net, result = fitted(steps=6, valid=scripted([0.5, 0.9, 0.1], every=2))
    assert (result.best.step, [s.step for s in result.history]) == (4, [2, 4, 6])
    assert torch.equal(weights(net), weights(fitted(steps=4)[0]))


def test_without_a_metric_the_lowest_validation_loss_selects():
    _, result = fitted(epochs=5, valid=batches())
    assert result.best.value == min(score.value for score in result.history)
    assert len(result.history) == 5


def test_early_stopping_counts_validations_without_improvement():
    worse = iter(range(100))
    metric = Metric("worse", lambda *_: torch.tensor(float(next(worse))))
    valid = Validation(batches(num=32), metric, every=1)
    _, result = fitted(steps=50, valid=valid, callbacks=[EarlyStopping(patience=3)])
    assert result.steps == 4
    assert "no improvement in 3" in result.stopped
    with pytest.raises(ConfigError, match="patience"):
        EarlyStopping(0)


def loader():
    return DataLoader(TensorDataset(*examples()), batch_size=32, shuffle=True)


@pytest.fixture(scope="module")
def uninterrupted():
    return fitted(loader(), steps=9, valid=Validation(batches(num=32), ACCURACY, every=2))


@pytest.mark.parametrize("stop", [1, 2, 3, 5, 7])
def test_a_resumed_run_is_bit_for_bit_the_uninterrupted_one(tmp_path, stop, uninterrupted):
    """Mid-epoch too: an epoch has three batches, shuffled by the loader."""
    path = tmp_path / "run.pt"
    options = {"valid": Validation(batches(num=32), ACCURACY, every=2), "checkpoint": path}
    whole, expected = uninterrupted
    net, first = fitted(loader(), steps=9, callbacks=[Spy(interrupt_at=stop)], **options)
    assert (first.stopped, first.steps) == ("interrupted", stop)
    net, result = fitted(loader(), steps=9, resume=True, **options)
    assert torch.equal(weights(net), weights(whole))
    seen, wanted = ([(s.step, s.value) for s in r.history] for r in (result, expected))
    assert seen == wanted
    assert result.evaluations == expected.evaluations


def test_an_interrupted_run_says_so_and_saves(tmp_path):
    spy = Spy(interrupt_at=2)
    _, result = fitted(steps=9, callbacks=[spy], checkpoint=tmp_path / "run.pt")
    assert result.stopped == "interrupted"
    assert spy.steps == [1, 2]
    assert spy.ended == 1
    assert "Ctrl-C again" in spy.messages[0]
    saved = checkpoints.load(tmp_path / "run.pt")
    assert (saved["optimizer"]["step"], saved["stopped"]) == (2, "interrupted")
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_resuming_a_finished_run_changes_nothing(tmp_path):
    options = {"steps": 4, "checkpoint": tmp_path / "run.pt", "valid": batches(num=32)}
    net, first = fitted(**options)
    again, second = fitted(resume=True, **options)
    assert torch.equal(weights(net), weights(again))
    assert second.history == first.history


def test_resume_without_or_with_the_wrong_checkpoint_is_refused(tmp_path):
    with pytest.raises(CheckpointError, match="resume needs"):
        fitted(steps=1, resume=True)
    with pytest.raises(CheckpointError, match="no checkpoint at"):
        fitted(steps=1, resume=True, checkpoint=tmp_path / "none.pt")
    fitted(steps=1, checkpoint=tmp_path / "run.pt")
    with pytest.raises(CheckpointError, match="seed 0"):
        fitted(seed=5, steps=2, resume=True, checkpoint=tmp_path / "run.pt")


def test_a_new_run_does_not_replace_a_saved_one(tmp_path):
    path = tmp_path / "run.pt"
    fitted(steps=3, checkpoint=path)
    before = path.read_bytes()
    sentence = r"run.pt holds a run already; resume it with resume=True, name another path, or"
    for checkpoint in (path, hardstep.Checkpoint(str(path))):
        with pytest.raises(CheckpointError, match=sentence):
            fitted(steps=1, checkpoint=checkpoint)
    assert path.read_bytes() == before


def test_a_checkpoint_that_cannot_be_saved_is_refused_before_the_first_step(tmp_path):
    (tmp_path / "file").touch()
    for path, sentence in (
        (tmp_path, "is a folder; name a file in it"),
        (tmp_path / "file" / "run.pt", "cannot be saved: .*file is no folder; name another"),
    ):
        spy = Spy()
        with pytest.raises(CheckpointError, match=sentence):
            fitted(steps=1, checkpoint=path, callbacks=[spy])
        assert spy.steps == []


def test_an_optimizer_for_another_model_is_refused():
    with pytest.raises(ConfigError, match="another model"):
        hardstep.fit(model(), batches(), optimizer=optimizer(model()), steps=1)


def test_a_dead_run_is_detected_and_said_once_at_the_line_of_the_user():
    net = model()
    with torch.no_grad():
        net[2].weight.zero_()
    settings = hardstep.Settings(probe_radius=hardstep.Length(1e-9), subspace=hardstep.Full())
    frozen = hardstep.PolyStep(net, settings)

    def flat(output, target):
        return torch.floor(nn.functional.cross_entropy(output, target) * 10) / 10

    with pytest.warns(DeadRowsWarning, match=r"nothing can move; .*wake.*probe_radius") as given:
        hardstep.fit(net, batches(), optimizer=frozen, steps=6, loss_fn=flat)
    assert [warning.filename for warning in given] == [__file__]


def nothing_but_nan(num=3):
    return [(inputs * math.nan, labels) for inputs, labels in batches()][:num]


@pytest.mark.parametrize("steps", [4, 30])
def test_a_run_that_never_sees_a_finite_loss_is_no_success(tmp_path, steps):
    """Neither as a dead start, whose advice would not help, nor as a finished run."""
    spy, path = Spy(), tmp_path / "run.pt"
    taken = min(steps, 10)
    with pytest.raises(ObjectiveError, match=f"every loss of the first {taken} steps was NaN or"):
        fitted(nothing_but_nan(), steps=steps, valid=batches(), callbacks=[spy], checkpoint=path)
    assert spy.steps == list(range(1, taken)) + [taken] * (steps == taken)
    assert len(spy.messages) == 1
    assert "Every loss of step 1 was NaN or infinite" in spy.messages[0]
    assert "check the inputs, and what the model puts out" in spy.messages[0]
    assert spy.ended == 1


def test_steps_without_a_finite_loss_are_counted_across_an_interruption(tmp_path):
    path, options = tmp_path / "run.pt", {"steps": 30}
    fitted(nothing_but_nan(), callbacks=[Spy(interrupt_at=6)], checkpoint=path, **options)
    assert checkpoints.load(path)["blind_steps"] == 6
    spy = Spy()
    with pytest.raises(ObjectiveError, match="the first 10 steps"):
        fitted(nothing_but_nan(), callbacks=[spy], checkpoint=path, resume=True, **options)
    assert spy.steps == [7, 8, 9]


def test_a_run_that_has_seen_finite_losses_goes_on_and_says_it_once():
    spy = Spy()
    train = [batches()[0], *nothing_but_nan(2)] + 6 * nothing_but_nan()
    _, result = fitted(train, epochs=1, callbacks=[spy])
    assert (result.steps, result.stopped) == (21, "finished")
    assert [text[:40] for text in spy.messages] == ["Every loss of step 2 was NaN or infinite"]


def test_a_validation_that_is_nan_is_said_once_and_never_selected():
    spy, valid = Spy(), scripted([math.nan, 0.5, math.nan, 0.4, math.nan])
    _, result = fitted(steps=5, valid=valid, callbacks=[spy])
    assert (result.best.step, result.best.value) == (2, 0.5)
    assert spy.messages == [
        "Validation at step 1: the scripted is NaN, which counts as worse than any number; check "
        "the batches of valid."
    ]


def test_validation_batches_that_are_used_up_are_refused():
    spy, valid = Spy(), (pair for pair in batches())
    with pytest.raises(DataError, match="no example to score: .* not a generator"):
        fitted(epochs=2, valid=valid, callbacks=[spy])
    assert len(spy.scores) == 1


LIMITS = {
    "fit: steps must be a whole number >= 1, got 0": {"steps": 0},
    "fit: steps must be a whole number >= 1, got -1": {"steps": -1},
    "fit: steps must be a whole number >= 1, got 1.5": {"steps": 1.5},
    "fit: steps must be a whole number >= 1, got True": {"steps": True},
    "fit: epochs must be a whole number >= 1, got 0": {"epochs": 0},
    "fit: epochs must be a whole number >= 1, got '3'": {"epochs": "3"},
    "fit: seconds must be a number > 0 and finite, got 0.0; leave it out": {"seconds": 0.0},
    "fit: seconds must be a number > 0 and finite, got nan": {"seconds": math.nan},
    "fit: seconds must be a number > 0 and finite, got inf": {"seconds": math.inf},
    "fit: seconds must be a number > 0 and finite, got '1 h'": {"seconds": "1 h"},
}


@pytest.mark.parametrize("sentence", LIMITS)
def test_limits_that_make_no_sense_are_refused_by_name(sentence):
    with pytest.raises(ConfigError, match=sentence):
        fitted(**LIMITS[sentence])


def test_an_interval_of_validations_is_a_whole_number():
    for every in (0, 2.5):
        with pytest.raises(ConfigError, match=f"Validation: every must be .* >= 1, got {every}"):
            Validation(batches(), every=every)


def test_batchnorm_statistics_follow_training_and_serve_validation():
    def build():
        return nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))

    net = hardstep.nn.build(build, 0)
    hardstep.fit(net, batches(), optimizer=optimizer(net), epochs=10)
    hidden = net[0](examples()[0])
    assert net[1].num_batches_tracked == 30
    torch.testing.assert_close(net[1].running_mean, hidden.mean(dim=0), atol=0.5, rtol=0.2)
    assert net.training


def test_mode_and_global_generator_are_left_as_found():
    net = model().eval()
    torch.manual_seed(3)
    before = torch.get_rng_state()
    hardstep.fit(net, loader(), batches(), optimizer=optimizer(net), epochs=2)
    assert torch.equal(before, torch.get_rng_state())
    assert not net.training


def test_default_optimizer_lowers_the_loss_of_a_small_network():
    net = model()
    inputs, labels = examples()
    loss_of = torch.no_grad()(lambda: float(nn.functional.cross_entropy(net(inputs), labels)))
    before = loss_of()
    hardstep.fit(net, batches(), epochs=10)
    after = loss_of()
    assert after < 0.5 * before
    assert math.isfinite(after)
