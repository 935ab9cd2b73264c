import pytest
import torch

from hardstep.errors import ConfigError
from hardstep.nn import ArgmaxSelfAttention, EncoderLayer, SoftmaxSelfAttention, build

TOKENS = torch.randn(3, 5, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
PADDED = torch.arange(5) >= torch.tensor([5, 3, 1])[:, None]
EACH = pytest.mark.parametrize("kind", [ArgmaxSelfAttention, SoftmaxSelfAttention])


def read_one_by_one(layer, tokens, is_padding):
    """What every token reads, head by head and key by key."""
    width = layer.width // layer.heads
    found = torch.zeros_like(tokens)
    keep = (~is_padding).nonzero()[:, 0].tolist()
    for head in range(layer.heads):
        part = slice(head * width, (head + 1) * width)
        q, k, v = (f(tokens)[:, part] for f in (layer.queries, layer.keys, layer.values))
        for i in range(len(tokens)):
            scores = torch.stack([q[i] @ k[j] / width**0.5 for j in keep])
            if isinstance(layer, ArgmaxSelfAttention):
                found[i, part] = v[keep[int(scores.argmax())]]
            else:
                found[i, part] = scores.exp() @ v[keep] / scores.exp().sum()
    return layer.outputs(found)


@EACH
def test_attention_equals_a_loop_over_tokens_and_keys(kind):
    layer = build(lambda: kind(8, 2), 0).double()
    output = layer(TOKENS, PADDED)
    for number, (tokens, is_padding) in enumerate(zip(TOKENS, PADDED, strict=True)):
        expected = read_one_by_one(layer, tokens, is_padding)
        torch.testing.assert_close(output[number], expected, rtol=1e-10, atol=1e-12)


@EACH
def test_padding_changes_nothing(kind):
    layer = build(lambda: EncoderLayer(kind(8, 2), 12), 0).double()
    whole = layer(TOKENS, PADDED)
    noisy = torch.where(PADDED[..., None], TOKENS + 100, TOKENS)
    torch.testing.assert_close(layer(noisy, PADDED)[~PADDED], whole[~PADDED], rtol=0, atol=1e-12)
    alone = layer(TOKENS[1:2, :3], PADDED[1:2, :3])
    torch.testing.assert_close(alone[0], whole[1, :3], rtol=0, atol=1e-12)


def test_either_kind_takes_the_weights_of_the_other():
    hard, soft = (build(kind, 0) for kind in (ArgmaxSelfAttention, SoftmaxSelfAttention))
    soft.load_state_dict(hard.state_dict())


def test_a_width_that_heads_cannot_share_is_refused():
    with pytest.raises(ConfigError, match="width must be a multiple of heads, got 8 and 3"):
        SoftmaxSelfAttention(8, 3)
