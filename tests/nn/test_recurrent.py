import pytest
import torch
from torch import nn

from hardstep.errors import ConfigError
from hardstep.nn import (
    HardLSTM,
    Quantize,
    Relaxed,
    Step,
    StraightThrough,
    build,
    quantize,
    with_surrogates,
)


def examples(*shape):
    return torch.randn(shape, generator=torch.Generator().manual_seed(1))


def test_with_sigmoid_gates_it_is_torchs_layer():
    ours, torchs = build(lambda: HardLSTM(3, 5), 0), nn.LSTM(3, 5, batch_first=True)
    torchs.load_state_dict(ours.state_dict())
    inputs = examples(4, 7, 3)
    torch.testing.assert_close(ours(inputs), torchs(inputs)[0], rtol=0, atol=1e-6)


def test_weights_are_rounded_before_use():
    hard = build(lambda: HardLSTM(3, 5, transform=Quantize()), 0)
    plain = HardLSTM(3, 5)
    with torch.no_grad():
        hard.bias_ih_l0.uniform_(-1, 1, generator=torch.Generator().manual_seed(0))
        for name, value in hard.named_parameters():
            getattr(plain, name).copy_(quantize(value))
    torch.testing.assert_close(hard(examples(2, 6, 3)), plain(examples(2, 6, 3)), rtol=0, atol=0)


def test_gates_are_open_or_closed():
    assert Step()(torch.tensor([-0.1, 0.0, 0.1])).tolist() == [0.0, 1.0, 1.0]
    layer = HardLSTM(1, 2, gate=Step())
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.zero_()
        layer.bias_ih_l0[4:6] = torch.tensor([0.5, -0.5])  # what enters, at every time step
        layer.bias_ih_l0[6] = -1.0  # the first unit lets nothing out
    states = layer(torch.zeros(1, 3, 1))
    entering = torch.tanh(torch.tensor(-0.5))
    expected = torch.tanh(entering * torch.tensor([1.0, 2.0, 3.0]))
    torch.testing.assert_close(states[0, :, 1], expected)
    assert not states[0, :, 0].any()


def test_no_gradient_passes_a_gate_and_with_surrogates_one_does():
    layer = build(lambda: HardLSTM(2, 4, gate=Step()), 0)
    layer(examples(3, 5, 2)).square().sum().backward()
    assert not layer.weight_ih_l0.grad[:8].any()  # what enters and what is kept
    copy = with_surrogates(layer)
    torch.testing.assert_close(copy(examples(3, 5, 2)), layer(examples(3, 5, 2)), rtol=0, atol=0)
    copy(examples(9, 5, 2)).square().sum().backward()
    assert copy.weight_ih_l0.grad[:8].any(dim=1).double().mean() > 0.5


def test_rounding_has_a_gradient_with_surrogates_only():
    layer = build(lambda: HardLSTM(2, 4, transform=Quantize()), 0)
    copy = with_surrogates(layer)
    assert isinstance(copy.transform, StraightThrough)
    copy(examples(3, 5, 2)).square().sum().backward()
    assert copy.weight_hh_l0.grad.any()
    twin = HardLSTM(2, 4, transform=Relaxed(Quantize()))
    twin.load_state_dict(layer.state_dict())
    assert twin(examples(3, 5, 2)).requires_grad


@pytest.mark.parametrize(("sizes", "what"), [((0, 4), "inputs"), ((2, 0), "hidden")])
def test_sizes_are_checked(sizes, what):
    with pytest.raises(ConfigError, match=f"HardLSTM: {what} must be"):
        HardLSTM(*sizes)
