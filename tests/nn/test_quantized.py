import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional

from hardstep.errors import ConfigError
from hardstep.nn import (
    AbsMax,
    Binary,
    BinaryConv2d,
    BinaryLinear,
    Identity,
    Quantize,
    QuantizedConv2d,
    QuantizedLinear,
    Relaxed,
    StraightThrough,
    Ternary,
    TernaryConv2d,
    TernaryLinear,
    TransformedConv1d,
    TransformedConv2d,
    TransformedConv3d,
    TransformedLinear,
    binarize,
    build,
    quantize,
    ternarize,
)

HARD = [Quantize(), Quantize(scale=0.05, bits=4), AbsMax(), Binary(), Ternary()]


@given(st.integers(1, 8), st.floats(1e-3, 1.0))
def test_quantized_weights_take_exactly_the_levels_of_their_bit_width(bits, scale):
    weight = torch.linspace(-300.0 * scale, 300.0 * scale, 4001, dtype=torch.float64)
    levels = np.arange(-(2 ** (bits - 1)), 2 ** (bits - 1)) * scale
    np.testing.assert_allclose(quantize(weight, scale, bits).unique().numpy(), levels, rtol=1e-12)


def test_quantizing_rounds_to_the_nearest_level_and_clamps_at_the_ends():
    weight = torch.tensor([0.0, 0.004, 0.006, -0.006, 1.27, 1.28, 9.0, -1.28, -9.0])
    expected = torch.tensor([0.0, 0.0, 0.01, -0.01, 1.27, 1.27, 1.27, -1.28, -1.28])
    torch.testing.assert_close(quantize(weight), expected)


def test_quantizing_twice_changes_nothing():
    weight = torch.randn(100, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(quantize(quantize(weight)), quantize(weight), rtol=0.0, atol=0.0)


@given(st.integers(2, 8), st.floats(-1e4, 1e4), st.integers(0, 1000))
def test_absmax_keeps_the_largest_weight_and_rounds_the_others_to_its_levels(bits, size, seed):
    weight = size * torch.randn(3, 5, generator=torch.Generator().manual_seed(seed)).double()
    rounded, scale = AbsMax(bits)(weight), AbsMax(bits).scale(weight)
    place = weight.abs().argmax()
    torch.testing.assert_close(rounded.ravel()[place], weight.ravel()[place])
    assert (rounded - weight).abs().max() <= 0.5 * scale * (1 + 1e-9)
    codes = rounded / scale
    torch.testing.assert_close(codes, codes.round())
    assert codes.abs().max() <= 2 ** (bits - 1) - 0.5


@given(st.integers(-60, 60), st.integers(0, 1000))
def test_absmax_never_saturates_however_far_weights_have_grown(power, seed):
    weight = torch.randn(4, 6, generator=torch.Generator().manual_seed(seed)).double()
    factor = 2.0**power
    assert torch.equal(AbsMax()(factor * weight), factor * AbsMax()(weight))


def test_absmax_leaves_zeros_and_scales_every_tensor_of_a_stack_by_itself():
    assert torch.equal(AbsMax()(torch.zeros(2, 3)), torch.zeros(2, 3))
    stack = torch.randn(4, 2, 3, generator=torch.Generator().manual_seed(0))
    stack *= torch.tensor([1e-3, 1.0, 50.0, 0.0])[:, None, None]
    assert torch.equal(torch.vmap(AbsMax())(stack), torch.stack([AbsMax()(one) for one in stack]))


def test_the_sign_of_zero_is_plus_one():
    weight = torch.tensor([-3.0, -1e-30, -0.0, 0.0, 1e-30, 3.0])
    assert binarize(weight).tolist() == [-1.0, -1.0, 1.0, 1.0, 1.0, 1.0]


def test_ternary_weights_are_zero_strictly_inside_the_threshold():
    weight = torch.tensor([-2.0, -0.5, -0.49, 0.0, 0.49, 0.5, 2.0])
    assert ternarize(weight).tolist() == [-1.0, -1.0, 0.0, 0.0, 0.0, 1.0, 1.0]


@pytest.mark.parametrize("function", [quantize, binarize, ternarize])
def test_transforms_keep_shape_and_precision(function):
    for dtype in (torch.float32, torch.float64, torch.bfloat16):
        result = function(torch.ones(2, 3, dtype=dtype))
        assert result.shape == (2, 3)
        assert result.dtype == dtype


@pytest.mark.parametrize("transform", HARD)
def test_a_linear_layer_computes_with_its_transformed_parameters(transform):
    layer = build(lambda: TransformedLinear(6, 4, transform=transform), 0)
    nn.init.uniform_(layer.bias, generator=torch.Generator().manual_seed(0))
    inputs = torch.randn(5, 6, generator=torch.Generator().manual_seed(1))
    bias = transform(layer.bias) if transform.covers_bias else layer.bias
    expected = inputs @ transform(layer.weight).T + bias
    torch.testing.assert_close(layer(inputs), expected)


@pytest.mark.parametrize("dims", [1, 2, 3])
@pytest.mark.parametrize("transform", HARD)
def test_a_convolution_computes_with_its_transformed_parameters(transform, dims):
    kind = (TransformedConv1d, TransformedConv2d, TransformedConv3d)[dims - 1]
    plain = (functional.conv1d, functional.conv2d, functional.conv3d)[dims - 1]
    layer = build(lambda: kind(2, 3, 3, stride=2, padding=1, transform=transform), 0)
    nn.init.uniform_(layer.bias, generator=torch.Generator().manual_seed(0))
    inputs = torch.randn(2, 2, *[5] * dims, generator=torch.Generator().manual_seed(1))
    bias = transform(layer.bias) if transform.covers_bias else layer.bias
    expected = plain(inputs, transform(layer.weight), bias, stride=2, padding=1)
    torch.testing.assert_close(layer(inputs), expected)


def test_a_convolution_keeps_the_padding_mode_of_torch():
    layer = TransformedConv2d(1, 1, 3, padding=1, padding_mode="circular")
    plain = nn.Conv2d(1, 1, 3, padding=1, padding_mode="circular")
    plain.load_state_dict(layer.state_dict())
    inputs = torch.randn(1, 1, 4, 4, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(layer(inputs), plain(inputs))


@pytest.mark.parametrize(
    ("linear", "convolution", "transform"),
    [
        (QuantizedLinear, QuantizedConv2d, Quantize()),
        (BinaryLinear, BinaryConv2d, Binary()),
        (TernaryLinear, TernaryConv2d, Ternary()),
    ],
)
def test_named_layers_are_the_generic_ones_with_their_transform(linear, convolution, transform):
    assert linear(4, 3).transform == convolution(4, 3, 3).transform == transform
    assert linear(4, 3, bias=False).bias is None
    assert linear(4, 3, transform=Relaxed(transform)).transform == Relaxed(transform)
    assert linear(4, 3, bias=False)(torch.ones(2, 4)).shape == (2, 3)
    assert repr(transform) in repr(linear(4, 3))


def test_quantized_layers_start_at_a_tenth_of_a_normal_with_no_bias():
    layer = build(lambda: QuantizedLinear(200, 200), 0)
    # 40,000 draws: five standard errors of a mean and of a standard deviation
    assert abs(layer.weight.mean().item()) < 5 * 0.1 / 200
    assert abs(layer.weight.std().item() - 0.1) < 5 * 0.1 / 200 / 2**0.5
    assert not layer.bias.any()


def test_ternary_layers_start_with_half_their_weights_absent():
    layer = build(lambda: TernaryLinear(200, 200), 0)
    absent = (ternarize(layer.weight) == 0).double().mean().item()
    assert abs(absent - 0.5) < 5 * 0.5 / 200


def test_binary_layers_start_as_torch_layers():
    plain = build(lambda: nn.Linear(5, 4), 0)
    layer = build(lambda: BinaryLinear(5, 4), 0)
    torch.testing.assert_close(layer.weight, plain.weight, rtol=0.0, atol=0.0)
    torch.testing.assert_close(layer.bias, plain.bias, rtol=0.0, atol=0.0)


def test_reset_parameters_draws_the_start_of_the_transform_again():
    layer = QuantizedLinear(3, 3)
    nn.init.constant_(layer.bias, 7.0)
    layer.reset_parameters()
    assert not layer.bias.any()


@pytest.mark.parametrize("hard", HARD)
def test_twins_start_with_the_values_of_the_hard_layer(hard):
    layers = [
        build(lambda t=t: TransformedLinear(6, 5, transform=t), 2)
        for t in (hard, Relaxed(hard), StraightThrough(hard))
    ]
    for layer in layers[1:]:
        for name, value in layers[0].state_dict().items():
            torch.testing.assert_close(layer.state_dict()[name], value, rtol=0.0, atol=0.0)


@pytest.mark.parametrize("hard", HARD)
def test_straight_through_is_hard_forward_and_the_identity_backward(hard):
    layer = build(lambda: TransformedLinear(6, 5, transform=hard), 0)
    twin = build(lambda: TransformedLinear(6, 5, transform=StraightThrough(hard)), 0)
    inputs = torch.randn(3, 6, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(twin(inputs), layer(inputs), rtol=0.0, atol=0.0)
    twin(inputs).sum().backward()
    torch.testing.assert_close(twin.weight.grad, inputs.sum(dim=0).expand(5, 6))
    torch.testing.assert_close(twin.bias.grad, torch.full((5,), 3.0))


@pytest.mark.parametrize("hard", HARD)
def test_the_relaxed_twin_is_an_ordinary_layer(hard):
    twin = TransformedLinear(6, 5, transform=Relaxed(hard))
    inputs = torch.randn(3, 6, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(twin(inputs), functional.linear(inputs, twin.weight, twin.bias))
    assert TransformedLinear(6, 5).transform == Identity()


@pytest.mark.parametrize("hard", HARD)
def test_no_gradient_reaches_a_hard_weight(hard):
    layer = TransformedLinear(6, 5, transform=hard)
    layer(torch.ones(2, 6, requires_grad=True)).sum().backward()
    assert layer.weight.grad is None or not layer.weight.grad.any()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Quantize(scale=0.0), "Quantize: scale must be a number > 0 and finite, got 0.0"),
        (lambda: Quantize(bits=0), "Quantize: bits must be a whole number >= 1, got 0"),
        (lambda: AbsMax(bits=1), "AbsMax: bits must be a whole number >= 2, got 1"),
        (lambda: Ternary(threshold=-1.0), "Ternary: threshold must be > 0, got -1.0"),
    ],
)
def test_impossible_transforms_are_refused_by_name(make, message):
    with pytest.raises(ConfigError, match=message):
        make()
