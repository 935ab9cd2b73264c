import pytest
import torch

from hardstep.errors import ConfigError
from hardstep.nn import ArgmaxAttention, HardMoE, SoftmaxAttention, SoftMoE, build

HIDDEN = torch.randn(9, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(0))


def built(kind, num):
    """A layer with that many keys or experts."""
    return build(lambda: kind(6, num), 0).double()


def scores_and_choices(layer, hidden):
    """One number for each key or expert, and the output of whoever chooses it."""
    if isinstance(layer, HardMoE | SoftMoE):
        return layer.gate(hidden), [expert(hidden) for expert in layer.experts]
    scores = torch.stack([torch.dot(hidden, key) for key in layer.keys])
    return scores, [layer.values(hidden) * torch.sigmoid(key) for key in layer.keys]


@pytest.mark.parametrize(("kind", "num"), [(ArgmaxAttention, 4), (HardMoE, 3)])
def test_attention_and_mixtures_equal_a_loop_over_examples(kind, num):
    layer, chosen = built(kind, num), set()
    for hidden, output in zip(HIDDEN, layer(HIDDEN), strict=True):
        scores, choices = scores_and_choices(layer, hidden)
        best = scores.tolist().index(max(scores.tolist()))
        chosen.add(best)
        torch.testing.assert_close(output, choices[best], rtol=1e-10, atol=1e-12)
    assert len(chosen) > 1


@pytest.mark.parametrize(("kind", "num"), [(SoftmaxAttention, 4), (SoftMoE, 3)])
def test_their_twins_equal_a_loop_over_examples(kind, num):
    layer = built(kind, num)
    for hidden, output in zip(HIDDEN, layer(HIDDEN), strict=True):
        scores, choices = scores_and_choices(layer, hidden)
        weights = torch.exp(scores) / torch.exp(scores).sum()
        expected = sum(weight * choice for weight, choice in zip(weights, choices, strict=True))
        torch.testing.assert_close(output, expected, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("kind", [ArgmaxAttention, HardMoE])
def test_attention_and_mixtures_take_any_leading_shape(kind):
    layer = built(kind, 3)
    torch.testing.assert_close(layer(HIDDEN[:6].reshape(2, 3, 6)).reshape(6, 6), layer(HIDDEN[:6]))
    torch.testing.assert_close(layer(HIDDEN.reshape(3, 3, 6)).reshape(9, 6), layer(HIDDEN))
    torch.testing.assert_close(layer(HIDDEN[0]), layer(HIDDEN)[0])


def test_keys_start_at_half_a_normal():
    keys = build(lambda: ArgmaxAttention(200, num_keys=200), 0).keys
    # 40,000 draws, five standard errors
    assert abs(keys.mean().item()) < 5 * 0.5 / 200
    assert abs(keys.std().item() - 0.5) < 5 * 0.5 / 200 / 2**0.5


def test_keys_nobody_chose_get_no_gradient_and_all_keys_of_the_twin_get_one():
    hard, soft = built(ArgmaxAttention, 8), built(SoftmaxAttention, 8)
    chosen = set((HIDDEN @ hard.keys.T).argmax(dim=1).tolist())
    for layer in (hard, soft):
        layer(HIDDEN).square().sum().backward()
    reached = {row for row in range(8) if hard.keys.grad[row].any()}
    assert reached == chosen != set(range(8))
    assert all(soft.keys.grad[row].any() for row in range(8))


def test_no_gradient_reaches_the_choice():
    layer = built(ArgmaxAttention, 4)
    hidden = HIDDEN.clone().requires_grad_()
    layer(hidden).sum().backward()
    chosen = (HIDDEN @ layer.keys.T).argmax(dim=1)
    through_values = torch.sigmoid(layer.keys[chosen]) @ layer.values.weight
    torch.testing.assert_close(hidden.grad, through_values.detach())


def test_an_expert_that_is_not_chosen_cannot_spoil_the_output():
    layer = built(HardMoE, 3)
    clean = layer(HIDDEN)
    chosen = layer.gate(HIDDEN).argmax(dim=1)
    with torch.no_grad():
        layer.experts[0][2].bias.fill_(float("nan"))
    spoiled = layer(HIDDEN)
    torch.testing.assert_close(spoiled[chosen != 0], clean[chosen != 0])


def test_no_gradient_reaches_the_hard_gate_and_one_reaches_the_soft_gate():
    hard, soft = built(HardMoE, 3), built(SoftMoE, 3)
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
