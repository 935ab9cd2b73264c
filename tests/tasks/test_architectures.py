import copy
import pickle

import pytest
import torch
from torch import nn
from torch.func import functional_call, vmap

from hardstep.errors import ConfigError
from hardstep.nn import StraightThrough, Ternary, build
from hardstep.tasks.architectures import (
    argmax_net,
    binary_cnn,
    binary_mlp,
    int8_mlp,
    mlp,
    moe_net,
    quantized_mlp,
    spiking_cnn,
    spiking_mlp,
    staircase_mlp,
    ternary_mlp,
)

COUNTS = {
    spiking_mlp: 101_770,
    mlp: 101_770,
    int8_mlp: 118_282,
    binary_mlp: 118_282,
    ternary_mlp: 118_282,
    staircase_mlp: 118_282,
    argmax_net: 119_306,
    moe_net: 235_672,
    spiking_cnn: 29_826,
    binary_cnn: 33_802,
}
FACTORIES = list(COUNTS)
each_factory = pytest.mark.parametrize("factory", FACTORIES, ids=lambda f: f.__name__)
hard_and_smooth = pytest.mark.parametrize("smooth", [False, True], ids=["hard", "smooth"])


def small(factory, smooth=False, seed=0):
    return build(lambda: factory(64, 12, 5, smooth=smooth), seed)


def examples(count=6, dtype=torch.float32):
    return 2.0 * torch.randn(count, 64, generator=torch.Generator().manual_seed(1), dtype=dtype)


def stacked_parameters(model, copies=3):
    generator = torch.Generator().manual_seed(2)
    return {
        name: torch.stack(
            [value + 0.3 * torch.randn(value.shape, generator=generator) for _ in range(copies)]
        ).detach()
        for name, value in model.named_parameters()
    }


@each_factory
def test_parameter_counts_are_those_of_the_paper_and_of_small_convolutions(factory):
    assert sum(p.numel() for p in factory().parameters()) == COUNTS[factory]


# Hard models in double precision only: batched and single products round differently, which a hard
# step would magnify.
@each_factory
@pytest.mark.parametrize(
    ("smooth", "dtype", "rounding"),
    [(False, torch.float64, 1e-10), (True, torch.float64, 1e-10), (True, torch.float32, 1e-5)],
)
def test_many_parameter_sets_at_once_equal_one_at_a_time(factory, smooth, dtype, rounding):
    model = small(factory, smooth).to(dtype)
    parameters = {k: v.to(dtype) for k, v in stacked_parameters(model).items()}
    inputs = examples(dtype=dtype)
    together = vmap(lambda p: functional_call(model, p, (inputs,)))(parameters)
    for index in range(3):
        alone = functional_call(model, {k: v[index] for k, v in parameters.items()}, (inputs,))
        torch.testing.assert_close(together[index], alone, rtol=rounding, atol=rounding)


@each_factory
@hard_and_smooth
def test_a_call_leaves_nothing_behind(factory, smooth):
    model = small(factory, smooth)
    before = {k: v.clone() for k, v in model.state_dict().items()}
    first = model(examples())
    model(-3.0 * examples())
    torch.testing.assert_close(model(examples()), first, rtol=0.0, atol=0.0)
    for name, value in model.state_dict().items():
        torch.testing.assert_close(value, before[name], rtol=0.0, atol=0.0)


@each_factory
def test_a_model_and_its_twin_share_names_shapes_and_initial_values(factory):
    hard, twin = small(factory), small(factory, smooth=True)
    twin.load_state_dict(hard.state_dict())
    for name, value in small(factory, smooth=True).state_dict().items():
        torch.testing.assert_close(value, hard.state_dict()[name], rtol=0.0, atol=0.0)


@each_factory
def test_gradients_reach_every_parameter_of_the_twin(factory):
    twin = small(factory, smooth=True)
    twin(examples(32)).square().sum().backward()
    assert all(p.grad is not None and p.grad.any() for p in twin.parameters())


# The plain network has no hard part; the keys of the argmax one are also the gates it uses.
@pytest.mark.parametrize(
    "factory", [f for f in FACTORIES if f not in (mlp, argmax_net)], ids=lambda f: f.__name__
)
def test_some_parameters_of_a_hard_model_get_no_gradient(factory):
    model = small(factory)
    scores = model(examples(2))
    if scores.requires_grad:
        scores.square().sum().backward()
    assert any(p.grad is None or not p.grad.any() for p in model.parameters())


@each_factory
@hard_and_smooth
def test_outputs_are_scores_per_class(factory, smooth):
    scores = small(factory, smooth)(examples())
    assert scores.shape == (6, 5)
    assert torch.isfinite(scores).all()


@each_factory
@hard_and_smooth
def test_models_survive_copying_and_pickling(factory, smooth):
    model = small(factory, smooth)
    expected = model(examples())
    for clone in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        torch.testing.assert_close(clone(examples()), expected, rtol=0.0, atol=0.0)


@each_factory
def test_building_depends_on_the_seed_only_and_leaves_the_global_generator_alone(factory):
    state = torch.get_rng_state()
    first = small(factory).state_dict()
    assert torch.equal(torch.get_rng_state(), state)
    torch.rand(3)
    again = small(factory).state_dict()
    other = small(factory, seed=1).state_dict()
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert any(not torch.equal(first[name], other[name]) for name in first)


def test_a_quantized_network_takes_any_transform():
    hard = small(ternary_mlp)
    twin = build(lambda: quantized_mlp(64, 12, 5, StraightThrough(Ternary())), 0)
    torch.testing.assert_close(twin(examples()), hard(examples()), rtol=0.0, atol=0.0)


@pytest.mark.parametrize("factory", [spiking_cnn, binary_cnn], ids=lambda f: f.__name__)
@pytest.mark.parametrize("inputs", [64, 784], ids=["digits", "mnist"])
def test_every_layer_of_a_convolutional_network_is_active_at_the_start(factory, inputs):
    model = build(lambda: factory(inputs), 0)
    pictures = torch.randn(64, inputs, generator=torch.Generator().manual_seed(1))
    layers = [m for m in model.modules() if isinstance(m, nn.Conv2d | nn.Linear)]
    differ = []
    for layer in layers[1:]:  # what a layer receives is what the one before it does

        def note(module, args):
            table = args[0].flatten(2) if args[0].dim() > 2 else args[0][..., None]
            spread = table.amax((0, 2)) > table.amin((0, 2))
            differ.append(float(spread.double().mean()))

        layer.register_forward_pre_hook(note)
    model(pictures)
    assert min(differ[-len(layers) + 1 :]) > 0.5


def test_sums_of_signs_are_of_order_one_and_exact():
    model = small(binary_cnn)
    signs = torch.where(torch.rand(3, 16, 8, 8, generator=torch.Generator()) > 0.5, 1.0, -1.0)
    layer = model[3]
    with torch.no_grad():
        layer.bias.zero_()
        single, double = layer(signs), copy.deepcopy(layer).double()(signs.double())
    assert torch.equal(single.double(), double)
    assert 0.5 < float(single.std()) < 2.0


def test_a_convolution_needs_square_pictures():
    with pytest.raises(ConfigError, match="square pictures, got 63 pixels"):
        spiking_cnn(63)
