"""Everything `fit` refuses of its arguments, and the sentence it does so with."""

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import hardstep
from hardstep.data import Batches, Split, digits
from hardstep.errors import CheckpointError, ConfigError, DataError, ObjectiveError
from hardstep.training import ACCURACY, EarlyStopping, Metric, Validation
from tests.training.small import SETTINGS, batches, examples, model, optimizer, weights

X, Y = examples()
SPLIT = Split(X, Y)
WAYS = r"; pass hardstep.data.Batches\(split, 128, seed=0\), a DataLoader, or a list such as"


def fit(train=None, net=None, **options):
    return hardstep.fit(net or model(), train or batches(), **({"steps": 2} | options))


NO_BATCHES = {
    "a Tensor": X,
    "a pair of tensors": (X, Y),
    "a ndarray": X.numpy(),
    "a Split": SPLIT,
    "a DataSet": digits(0),
    "a dict": {"x": X},
    "a str": "train.csv",
    "a int": 3,
}


@pytest.mark.parametrize("seen", NO_BATCHES)
def test_what_is_no_batches_is_refused_for_training_and_validation(seen):
    sentence = f"must be batches .inputs, target., got {seen}{WAYS}"
    with pytest.raises(ConfigError, match=f"fit: train {sentence}"):
        hardstep.fit(model(), NO_BATCHES[seen], steps=2)
    with pytest.raises(ConfigError, match=f"fit: valid {sentence}"):
        fit(valid=NO_BATCHES[seen])


def test_batches_that_are_none_are_refused_before_the_first_step():
    for name in ("train", "valid"):
        with pytest.raises(DataError, match=f"fit: {name} has no batch; pass"):
            hardstep.fit(model(), **({"train": batches()} | {name: []}), steps=2)


ODD_BATCHES = {
    r"a batch must be a pair .* got a list of 1, which leaves cross_entropy without a target": (
        DataLoader(TensorDataset(X), 32)
    ),
    "got a Tensor, which leaves": [X],
    "got a tuple of 3": [(X, Y, Y)],
    "got a dict of x, y": [{"x": X, "y": Y}],
    r"numpy arrays did not suit the model or the loss \(.*make tensors": [(X.numpy(), Y.numpy())],
}


@pytest.mark.parametrize("sentence", ODD_BATCHES)
def test_a_batch_of_another_form_is_refused(sentence):
    with pytest.raises(DataError, match=sentence):
        fit(ODD_BATCHES[sentence])


def test_a_validation_batch_without_a_target_is_refused():
    with pytest.raises(DataError, match="got a Tensor, which leaves _accuracy without a target"):
        fit(valid=Validation([X], ACCURACY, every=1))


def test_batches_of_inputs_alone_and_models_of_arrays_are_fine():
    class OfArrays(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(3, 2)

        def forward(self, inputs):
            return self.layer(torch.from_numpy(inputs))

    assert fit([X], loss_fn=lambda output: output.abs().mean()).steps == 2
    assert fit([(X.numpy(), Y)], OfArrays()).steps == 2


def test_what_is_no_optimizer_is_refused():
    net = model()
    for wrong, seen in (
        (torch.optim.Adam(net.parameters()), "a Adam"),
        (hardstep.PolyStep, "the class PolyStep"),
        ("polystep", "a str"),
    ):
        sentence = rf"optimizer must be an object such as PolyStep\(model\) .*, got {seen}"
        with pytest.raises(ConfigError, match=sentence) as caught:
            fit(net=net, optimizer=wrong)
        assert "\n" not in str(caught.value)


CALLBACKS = {
    r"callbacks must be a list, got EarlyStopping\(patience=2\); write": EarlyStopping(2),
    "must hold objects of classes derived from hardstep.training.Callback, got <function": [
        lambda run: None
    ],
    "must hold objects .* got <class": [EarlyStopping],
    "EarlyStopping counts validations; give valid, or leave it out": [EarlyStopping(2)],
}


@pytest.mark.parametrize("sentence", CALLBACKS)
def test_callbacks_that_are_none_or_never_called_are_refused(sentence):
    with pytest.raises(ConfigError, match=sentence):
        fit(callbacks=CALLBACKS[sentence])


def test_a_loss_function_that_is_none_is_refused():
    with pytest.raises(ConfigError, match="loss_fn must be a function of .* got 'mse'"):
        fit(loss_fn="mse")
    with pytest.raises(
        ConfigError, match=r"the class CrossEntropyLoss; write CrossEntropyLoss\(\)"
    ):
        fit(loss_fn=nn.CrossEntropyLoss)


def test_a_metric_is_a_metric_and_returns_a_number():
    with pytest.raises(ConfigError, match=r"metric must be ACCURACY or such as Metric\('error'"):
        Validation(batches(), metric=lambda output, target: 0.5)
    for value, seen in ((torch.zeros(3), r"shape \(3,\)"), (None, "None")):
        with pytest.raises(ObjectiveError, match=f"metric must return one number, got {seen}"):
            fit(valid=Validation(batches(), Metric("odd", lambda *_, v=value: v), every=1))


# -- another run's checkpoint -------------------------------------------------------------------


def stopped(path, train):
    """A run of nine steps that was stopped after four, and its model."""

    class Stop(hardstep.training.Callback):
        def on_step(self, run, report):
            if run.step == 4:
                run.stop("enough")

    net = model()
    options = {"optimizer": optimizer(net), "steps": 9, "checkpoint": path}
    hardstep.fit(net, train, callbacks=[Stop()], **options)
    return net


def resumed(path, train, net=None, **options):
    net = net or model()
    settings = {"optimizer": optimizer(net), "steps": 9} | options
    return net, hardstep.fit(net, train, checkpoint=path, resume=True, **settings)


def loader(seed=3, size=32):
    generator = torch.Generator().manual_seed(seed)
    return DataLoader(TensorDataset(X, Y), size, shuffle=True, generator=generator)


OTHER_STREAMS = {
    "train has batch_size 16, that of the saved run had 32; resume with the same batches, or": (
        lambda: Batches(SPLIT, 32, seed=0),
        lambda: Batches(SPLIT, 16, seed=0),
    ),
    "train has seed 9, that of the saved run had 0": (
        lambda: Batches(SPLIT, 32, seed=0),
        lambda: Batches(SPLIT, 32, seed=9),
    ),
    "train has generator seed 4, that of the saved run had 3": (loader, lambda: loader(4)),
    "train has batch_size 48, that of the saved run had 32": (loader, lambda: loader(size=48)),
    "train has number of batches 2, that of the saved run had 3": (batches, lambda: batches()[:2]),
}


@pytest.mark.parametrize("sentence", OTHER_STREAMS)
def test_a_run_is_not_resumed_with_other_batches(tmp_path, sentence):
    first, second = OTHER_STREAMS[sentence]
    stopped(tmp_path / "run.pt", first())
    net = model()
    before = weights(net)
    with pytest.raises(CheckpointError, match=sentence):
        resumed(tmp_path / "run.pt", second(), net)
    assert torch.equal(weights(net), before)
    assert resumed(tmp_path / "run.pt", first())[1].steps == 9


def test_a_loader_with_a_generator_serves_the_same_run_twice_in_one_process(tmp_path):
    whole, train = model(), loader()
    found = train.generator.get_state()
    hardstep.fit(whole, train, optimizer=optimizer(whole), steps=9)
    assert torch.equal(train.generator.get_state(), found)
    stopped(tmp_path / "run.pt", train)
    assert torch.equal(weights(resumed(tmp_path / "run.pt", train)[0]), weights(whole))


def test_a_checkpoint_that_does_not_know_its_batches_is_resumed_as_before(tmp_path):
    path = tmp_path / "run.pt"
    stopped(path, Batches(SPLIT, 32, seed=0))
    saved = torch.load(path, weights_only=True)
    for name in ("stream", "sighted", "blind_steps"):
        del saved[name]
    torch.save(saved, path)
    assert resumed(path, Batches(SPLIT, 16, seed=9))[1].steps == 9


def test_a_checkpoint_of_another_model_is_refused_in_one_sentence(tmp_path):
    stopped(tmp_path / "run.pt", batches())
    net = nn.Linear(3, 2)
    sentence = "of another model: weight was absent and is .2, 3.; build the model it was saved"
    with pytest.raises(CheckpointError, match=sentence) as caught:
        resumed(tmp_path / "run.pt", batches(), net, optimizer=None)
    assert "\n" not in str(caught.value)


def test_more_steps_than_the_schedules_were_made_for_get_the_way_out(tmp_path):
    path, options = tmp_path / "run.pt", {"checkpoint": tmp_path / "run.pt"}
    fit(steps=4, **options)
    before = path.read_bytes()
    sentence = (
        r"step_radius.value.steps: 4 → 12\).*was to take 4 steps and this one 12, .* resume with "
        "its limits, or train on from its weights"
    )
    with pytest.raises(CheckpointError, match=sentence):
        fit(steps=12, resume=True, **options)
    assert path.read_bytes() == before
    net = model()
    stopped(tmp_path / "other.pt", batches())
    other = hardstep.PolyStep(net, SETTINGS, temperature=0.5)
    with pytest.raises(CheckpointError, match="temperature: 0.02 → 0.5") as caught:
        resumed(tmp_path / "other.pt", batches(), net, optimizer=other)
    assert "this one" not in str(caught.value)


def test_what_is_no_model_is_refused():
    with pytest.raises(
        ConfigError, match=r"^fit: model must be a module, got \[.*fit\(model, train"
    ):
        hardstep.fit([(torch.ones(1), torch.ones(1))], model(), steps=1)
