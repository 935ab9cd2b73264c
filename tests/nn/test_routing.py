import pytest
import torch

from hardstep.errors import ConfigError
from hardstep.nn import HardMoE, SoftMoE, build

HIDDEN = torch.randn(9, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(0))


def test_it_equals_a_loop_over_examples():
    layer = build(lambda: HardMoE(6, num_experts=3), 0).double()
    chosen = set()
    for hidden, output in zip(HIDDEN, layer(HIDDEN), strict=True):
        scores = layer.gate(hidden).tolist()
        best = scores.index(max(scores))
        chosen.add(best)
        torch.testing.assert_close(output, layer.experts[best](hidden), rtol=1e-10, atol=1e-12)
    assert len(chosen) > 1


def test_the_twin_equals_a_loop_over_examples():
    layer = build(lambda: SoftMoE(6, num_experts=3), 0).double()
    for hidden, output in zip(HIDDEN, layer(HIDDEN), strict=True):
        weights = torch.exp(layer.gate(hidden))
        pairs = zip(weights / weights.sum(), layer.experts, strict=True)
        expected = sum(weight * expert(hidden) for weight, expert in pairs)
        torch.testing.assert_close(output, expected, rtol=1e-10, atol=1e-12)


def test_it_takes_any_leading_shape():
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


def test_impossible_sizes_are_refused():
    with pytest.raises(ConfigError, match="HardMoE: dim and num_experts must be at least 1"):
        HardMoE(4, num_experts=0)
