"""`PolyStep(model, only=…)`: what is chosen is searched, and nothing else is touched."""

import copy

import pytest
import torch
from torch import nn

from hardstep import fit
from hardstep.errors import CheckpointError, ConfigError
from hardstep.evaluation import Batched, Incremental, OneByOne
from hardstep.optim import FullDecay, PolyStep, Settings, WeightDecay, diagnose
from hardstep.subspaces import Adaptive, Full, LayerWise, LowRank, RowWise, Sketch

from .toys import Net, batch, mse, parameters, tiny

SUBSPACES = (Full(), RowWise(1), LayerWise(1), LowRank(1), Adaptive(1), Sketch(RowWise(2)))


def names(only, model=None):
    return list(PolyStep(Net() if model is None else model, only=only).tensors)


# -- what is chosen -------------------------------------------------------------------------------


def test_a_name_a_pattern_a_tensor_and_lists_of_them_choose_parameters_in_the_models_order():
    model = Net()
    assert names("last.weight") == ["last.weight"]
    assert names("first.*") == ["first.weight", "first.bias"]
    assert names("*.bias") == ["first.bias", "last.bias"]
    assert names(["last.*", "first.bias"]) == ["first.bias", "last.weight", "last.bias"]
    assert names(model.last.bias, model) == ["last.bias"]
    assert names(model.last.parameters(), model) == ["last.weight", "last.bias"]
    assert names(["last.*", "*.bias", "last.bias", model.last.bias], model) == [
        "first.bias",
        "last.weight",
        "last.bias",
    ]


def test_a_name_is_a_name_before_it_is_a_pattern():
    tensors = {"a[1]": torch.zeros(2), "a1": torch.zeros(2)}
    assert names("a[1]", tensors) == ["a[1]"]
    assert names("a[12]", tensors) == ["a1"]


def test_a_tied_parameter_is_chosen_by_each_of_its_names_and_searched_once():
    model = nn.ModuleDict({"encoder": nn.Linear(3, 3), "decoder": nn.Linear(3, 3)})
    model["decoder"].weight = model["encoder"].weight
    for only in ("encoder.weight", "decoder.weight", model["decoder"].weight):
        assert names(only, model) == ["encoder.weight"]
    assert names("*.weight", model) == ["encoder.weight"]
    assert names("decoder.*", model) == ["encoder.weight", "decoder.bias"]


def mixed():
    """A model with parameters that cannot be searched."""
    model = nn.Module()
    model.router = nn.Linear(3, 2)
    model.router.codes = nn.Parameter(torch.arange(4), requires_grad=False)
    model.router.frozen = nn.Parameter(torch.ones(2), requires_grad=False)
    model.router.empty = nn.Parameter(torch.ones(0))
    model.phase = nn.Parameter(torch.ones(2, dtype=torch.complex64))
    return model


NET = "matches no parameter of Net; "
REFUSED = {
    f"only='last.wieght' {NET}did you mean 'last.weight'": "last.wieght",
    f"only='last' {NET}did you mean 'last.": "last",
    rf"only='zzz\*' {NET}there is first.weight, first.bias, last.weight, last.bias$": "zzz*",
    rf"only=a tensor \(4, 3\) {NET}give its own tensors, not copies": torch.zeros(4, 3),
    "only is empty; leave it out": [],
    r"only takes names, patterns such as 'router.\*', and tensors .*, got a Linear": nn.Linear(
        1, 1
    ),
    "only takes names.*, got a int": [3],
}


@pytest.mark.parametrize("sentence", REFUSED)
def test_what_chooses_nothing_is_refused_with_the_nearest_name(sentence):
    with pytest.raises(ConfigError, match=sentence):
        PolyStep(Net(), only=REFUSED[sentence])


@pytest.mark.parametrize(
    ("only", "fault"),
    [
        ("router.codes", r"'router.codes' \(int64\)"),
        ("router.f*", r"'router.frozen' \(requires_grad=False\)"),
        ("router.empty", r"'router.empty' \(empty\)"),
        ("phase", r"'phase' \(complex64\)"),
        (["router.weight", "phase"], r"'phase' \(complex64\)"),
    ],
)
def test_what_cannot_be_searched_is_refused_with_the_reason(only, fault):
    with pytest.raises(ConfigError, match=f"matches nothing that can be searched: {fault}"):
        PolyStep(mixed(), only=only)


def test_a_pattern_says_what_it_leaves_out():
    left = r"only='router.\*' leaves out 'router.codes' \(int64\), 'router.frozen' \(requires_grad"
    with pytest.warns(UserWarning, match=left) as caught:
        assert names("router.*", mixed()) == ["router.weight", "router.bias"]
    assert caught[0].filename == __file__


def test_named_tensors_can_be_chosen_and_the_others_may_be_anything():
    tensors = {"gain": torch.zeros(3), "table": torch.arange(5), "offset": torch.zeros(2)}
    opt = tiny(tensors, subspace=Full(), only="gain")
    opt.step(batched=lambda stacked: (stacked["gain"] - 1).square().sum(1))
    assert tensors["gain"].norm() > 0
    assert torch.equal(tensors["table"], torch.arange(5))
    with pytest.raises(ConfigError, match=r"only='table' .*: 'table' \(int64\)"):
        PolyStep(tensors, only="table")


# -- the rest is left alone -----------------------------------------------------------------------


@pytest.mark.parametrize("subspace", SUBSPACES, ids=lambda s: type(s).__name__)
def test_a_choice_takes_the_steps_of_a_model_whose_rest_is_frozen(subspace):
    chosen, frozen = Net(), Net()
    frozen.first.requires_grad_(requires_grad=False)
    rules = (WeightDecay(0.1),) if not isinstance(subspace, Sketch) else (FullDecay(0.1),)
    opts = [
        tiny(chosen, subspace=subspace, rules=rules, only="last.*"),
        tiny(frozen, subspace=subspace, rules=rules),
    ]
    for i in range(3):
        losses = {opt.step(*batch(i), mse) for opt in opts}
        assert len(losses) == 1
    assert torch.equal(parameters(chosen), parameters(frozen))
    assert torch.equal(chosen.first.weight, Net().first.weight)
    assert not torch.equal(chosen.last.weight, Net().last.weight)


@pytest.mark.parametrize("evaluator", [Incremental, Batched, OneByOne])
def test_the_rest_keeps_identity_gradients_and_flags_and_an_optimizer_of_torch_trains_it(evaluator):
    model, x, y = Net(), *batch()
    opt = tiny(model, only="last.*", evaluator=evaluator())
    adam = torch.optim.Adam(model.first.parameters(), lr=0.01)
    rest = dict(model.first.named_parameters())
    for _ in range(3):
        adam.zero_grad()
        mse(model(x), y).backward()
        adam.step()
        before = {name: (p.detach().clone(), p.grad.clone()) for name, p in rest.items()}
        opt.step(x, y, mse)
        opt.step(lambda: mse(model(x), y))
        for name, p in model.first.named_parameters():
            value, gradient = before[name]
            assert p is rest[name]
            assert p.requires_grad
            assert torch.equal(p.detach(), value)
            assert torch.equal(p.grad, gradient)


def test_a_step_sees_the_weights_that_others_trained_meanwhile():
    model, x, y = Net(), *batch()
    opt = tiny(model, only="last.*")
    opt.step(x, y, mse)
    with torch.no_grad():
        model.first.weight.mul_(-2)
        model.last.bias.add_(0.5)
    fresh = copy.deepcopy(model)
    other = tiny(fresh, only="last.*")
    other.load_state_dict(opt.state_dict())
    assert opt.step(x, y, mse) == other.step(x, y, mse)
    assert torch.equal(parameters(model), parameters(fresh))


def test_the_rest_may_be_frozen_or_replaced_and_what_is_searched_may_not_be_frozen():
    model = Net()
    opt = tiny(model, only="last.*")
    model.first.weight = nn.Parameter(torch.zeros(4, 3, dtype=torch.float64))
    model.first.bias.requires_grad_(requires_grad=False)
    opt.step(*batch(), mse)
    model.last.requires_grad_(requires_grad=False)
    with pytest.raises(ConfigError, match=r"parameters changed .*'last.bias' was .* and is None"):
        opt.step(*batch(), mse)


# -- with everything else -------------------------------------------------------------------------


def test_a_state_is_refused_by_an_optimizer_that_searches_something_else():
    def state(only):
        opt = tiny(Net(), only=only)
        opt.step(*batch(), mse)
        return opt.state_dict()

    for saved, now in (("last.*", "first.*"), ("last.*", None), (None, "last.*")):
        with pytest.raises(CheckpointError, match=r"saved with only=.*, this one has only="):
            tiny(Net(), only=now).load_state_dict(state(saved))
    same = tiny(Net(), only=["last.bias", "last.weight"])
    same.load_state_dict(state("last.*"))
    assert same.steps == 1


def test_a_choice_is_fitted_saved_and_resumed_and_no_other_one_resumes_it(tmp_path):
    data = [batch(i) for i in range(2)]

    def train(model, steps, only="last.*", **options):
        return fit(
            model, data, loss_fn=mse, optimizer=tiny(model, only=only), steps=steps, **options
        )

    whole, halves, path = Net(), Net(), tmp_path / "run.pt"
    train(whole, 4)
    train(halves, 2, checkpoint=path)
    with pytest.raises(CheckpointError, match=r"saved with only=\['last.weight', 'last.bias'\]"):
        train(Net(), 4, only="first.*", checkpoint=path, resume=True)
    resumed = Net(seed=3)
    train(resumed, 4, checkpoint=path, resume=True)
    assert torch.equal(parameters(whole), parameters(resumed))
    assert torch.equal(whole.first.weight, Net().first.weight)


def test_explain_and_diagnose_look_at_what_is_searched():
    model, batches = Net(), [batch(i, 20) for i in range(3)]
    told = tiny(model, only="last.*").explain(*batches[0], mse)
    assert [one.name for one in told.parameters] == ["last.weight", "last.bias"]
    settings = Settings(subspace=RowWise(1))
    chosen = diagnose(model, batches, mse, settings, only=model.last.parameters())
    frozen = Net()
    frozen.first.requires_grad_(requires_grad=False)
    assert chosen == diagnose(frozen, batches, mse, settings)
