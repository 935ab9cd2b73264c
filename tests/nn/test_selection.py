import pytest
import torch

from hardstep.errors import ConfigError
from hardstep.nn import ArgmaxAttention, HardMoE, SoftmaxAttention, SoftMoE, build

HIDDEN = torch.randn(9, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(0))


def test_attention_equals_a_loop_over_examples_and_keys():
    layer = build(lambda: ArgmaxAttention(6, num_keys=4), 0).double()
    chosen = set()
    for hidden, output in zip(HIDDEN, layer(HIDDEN), strict=True):
        scores = [torch.dot(hidden, key).item() for key in layer.keys]
        best = scores.index(max(scores))
        chosen.add(best)
        expected = layer.values(hidden) * torch.sigmoid(layer.keys[best])
        torch.testing.assert_close(output, expected, rtol=1e-10, atol=1e-12)
    assert len(chosen) > 1


def test_the_twin_of_attention_equals_a_loop_over_examples_and_keys():
    layer = build(lambda: SoftmaxAttention(6, num_keys=4), 0).double()
    for hidden, output in zip(HIDDEN, layer(HIDDEN), strict=True):
        weights = torch.stack([torch.exp(torch.dot(hidden, key)) for key in layer.keys])
        pairs = zip(weights / weights.sum(), layer.keys, strict=True)
        gate = sum(weight * torch.sigmoid(key) for weight, key in pairs)
        torch.testing.assert_close(output, layer.values(hidden) * gate, rtol=1e-10, atol=1e-12)


def test_attention_takes_any_leading_shape():
    layer = build(lambda: ArgmaxAttention(6, num_keys=3), 0).double()
    torch.testing.assert_close(layer(HIDDEN[:6].reshape(2, 3, 6)).reshape(6, 6), layer(HIDDEN[:6]))
    torch.testing.assert_close(layer(HIDDEN[0]), layer(HIDDEN)[0])


def test_keys_start_at_half_a_normal():
    keys = build(lambda: ArgmaxAttention(200, num_keys=200), 0).keys
    # 40,000 draws, five standard errors
    assert abs(keys.mean().item()) < 5 * 0.5 / 200
    assert abs(keys.std().item() - 0.5) < 5 * 0.5 / 200 / 2**0.5


def test_keys_nobody_chose_get_no_gradient_and_all_keys_of_the_twin_get_one():
    hard = build(lambda: ArgmaxAttention(6, num_keys=8), 0).double()
    soft = build(lambda: SoftmaxAttention(6, num_keys=8), 0).double()
    chosen = set((HIDDEN @ hard.keys.T).argmax(dim=1).tolist())
    for layer in (hard, soft):
        layer(HIDDEN).square().sum().backward()
    reached = {row for row in range(8) if hard.keys.grad[row].any()}
    assert reached == chosen != set(range(8))
    assert all(soft.keys.grad[row].any() for row in range(8))


def test_no_gradient_reaches_the_choice():
    layer = build(lambda: ArgmaxAttention(6, num_keys=4), 0).double()
    hidden = HIDDEN.clone().requires_grad_()
    layer(hidden).sum().backward()
    chosen = (HIDDEN @ layer.keys.T).argmax(dim=1)
    through_values = torch.sigmoid(layer.keys[chosen]) @ layer.values.weight
    torch.testing.assert_close(hidden.grad, through_values.detach())


# -- mixtures of experts -----------------------------------------------------------------------


def test_a_mixture_equals_a_loop_over_examples():
    layer = build(lambda: HardMoE(6, num_experts=3), 0).double()
    chosen = set()
    for hidden, output in zip(HIDDEN, layer(HIDDEN), strict=True):
        scores = layer.gate(hidden).tolist()
        best = scores.index(max(scores))
        chosen.add(best)
        torch.testing.assert_close(output, layer.experts[best](hidden), rtol=1e-10, atol=1e-12)
    assert len(chosen) > 1


def test_the_twin_of_a_mixture_equals_a_loop_over_examples():
    layer = build(lambda: SoftMoE(6, num_experts=3), 0).double()
    for hidden, output in zip(HIDDEN, layer(HIDDEN), strict=True):
        weights = torch.exp(layer.gate(hidden))
        pairs = zip(weights / weights.sum(), layer.experts, strict=True)
        expected = sum(weight * expert(hidden) for weight, expert in pairs)
        torch.testing.assert_close(output, expected, rtol=1e-10, atol=1e-12)


def test_a_mixture_takes_any_leading_shape():
    layer = build(lambda: HardMoE(6, num_experts=3), 0).double()
    torch.testing.assert_close(layer(HIDDEN.reshape(3, 3, 6)).reshape(9, 6), layer(HIDDEN))
    torch.testing.assert_close(layer(HIDDEN[0]), layer(HIDDEN)[0])


def test_an_expert_that_is_not_chosen_cannot_spoil_the_output():
    layer = build(lambda: HardMoE(6, num_experts=3), 0).double()
    clean = layer(HIDDEN)
    chosen = layer.gate(HIDDEN).argmax(dim=1)
    with torch.no_grad():
        layer.experts[0][2].bias.fill_(float("nan"))
    spoiled = layer(HIDDEN)
    torch.testing.assert_close(spoiled[chosen != 0], clean[chosen != 0])


def test_no_gradient_reaches_the_hard_gate_and_one_reaches_the_soft_gate():
    hard = build(lambda: HardMoE(6, num_experts=3), 0).double()
    soft = build(lambda: SoftMoE(6, num_experts=3), 0).double()
    for layer in (hard, soft):
        layer(HIDDEN).square().sum().backward()
    assert hard.gate.weight.grad is None
    assert all(parameter.grad.any() for parameter in soft.parameters())


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: ArgmaxAttention(4, num_keys=0), "ArgmaxAttention: num_keys must be .* got 0"),
        (lambda: SoftmaxAttention(0), "SoftmaxAttention: dim must be a whole number >= 1, got 0"),
        (lambda: HardMoE(4, num_experts=0), "HardMoE: num_experts must be .* >= 1, got 0"),
        (lambda: SoftMoE(-1), "SoftMoE: dim must be a whole number >= 1, got -1"),
    ],
)
def test_impossible_sizes_are_refused(make, message):
    with pytest.raises(ConfigError, match=message):
        make()
