import pytest
import torch
from torch import nn

from hardstep.nn import (
    LIF,
    Sign,
    SmoothLIF,
    Staircase,
    Surrogate,
    SurrogateLIF,
    build,
    with_surrogates,
)
from hardstep.tasks.architectures import (
    binary_cnn,
    binary_mlp,
    int8_mlp,
    spiking_cnn,
    spiking_mlp,
    staircase_mlp,
    ternary_mlp,
)

HARD = [spiking_cnn, binary_cnn, spiking_mlp, binary_mlp, ternary_mlp, int8_mlp, staircase_mlp]


def inputs(count=16, width=64):
    return 2.0 * torch.randn(count, width, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("factory", HARD, ids=lambda f: f.__name__)
def test_the_forward_pass_is_the_hard_networks_bit_for_bit(factory):
    model = build(lambda: factory(64, 16, 5), 0)
    twin = with_surrogates(model)
    assert torch.equal(twin(inputs()), model(inputs()))
    assert dict(twin.named_parameters()).keys() == dict(model.named_parameters()).keys()


@pytest.mark.parametrize("factory", HARD, ids=lambda f: f.__name__)
def test_a_gradient_reaches_every_parameter(factory):
    model = build(lambda: factory(64, 16, 5), 0)
    with_surrogates(model)(inputs(64)).square().sum().backward()  # of a copy
    assert all(parameter.grad is None for parameter in model.parameters())
    twin = with_surrogates(model)
    twin(inputs(64)).square().sum().backward()
    assert all(p.grad is not None and p.grad.any() for p in twin.parameters())


@pytest.mark.parametrize(
    ("hard", "soft"),
    [(Sign(), nn.Hardtanh()), (Staircase(3), nn.Sigmoid())],
    ids=["sign", "staircase"],
)
def test_the_gradient_is_the_soft_ones(hard, soft):
    values = torch.linspace(-2, 2, 9, dtype=torch.float64, requires_grad=True)
    twin = with_surrogates(hard)
    assert isinstance(twin, Surrogate)
    assert torch.equal(twin(values), hard(values))
    (got,) = torch.autograd.grad(twin(values).sum(), values)
    (wanted,) = torch.autograd.grad(soft(values).sum(), values)
    torch.testing.assert_close(got, wanted, rtol=1e-12, atol=0.0)


def test_a_neuron_fires_as_the_hard_one_and_learns_as_the_smooth_one():
    current = torch.linspace(0, 2, 9, dtype=torch.float64, requires_grad=True)
    neuron = with_surrogates(LIF(decay=0.5, threshold=0.9))
    assert isinstance(neuron, SurrogateLIF)
    spikes = neuron.fire(current)
    assert torch.equal(spikes, LIF(threshold=0.9).fire(current))
    (got,) = torch.autograd.grad(spikes.sum(), current)
    (wanted,) = torch.autograd.grad(SmoothLIF(threshold=0.9).fire(current).sum(), current)
    torch.testing.assert_close(got, wanted, rtol=1e-12, atol=0.0)


def test_a_layer_without_a_hard_step_is_copied_as_it_is():
    model = nn.Linear(3, 2)
    assert torch.equal(with_surrogates(model)(torch.ones(1, 3)), model(torch.ones(1, 3)))


def test_a_sign_of_zero_is_plus_one():
    assert Sign()(torch.tensor([-0.5, -0.0, 0.0, 2.0])).tolist() == [-1.0, 1.0, 1.0, 1.0]
