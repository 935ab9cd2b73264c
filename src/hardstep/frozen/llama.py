"""The llama architecture in plain torch, with the names that tensors have in GGUF files.

    x + attention(norm(x))      rotary positions, several query heads per key and value head
    x + down(silu(gate(norm(x))) · up(norm(x)))

and a norm after the last block. Norms divide by the root mean square. GGUF files order queries and
keys such that neighbors are rotated together.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import linear, scaled_dot_product_attention, silu

from hardstep.errors import ConfigError


@dataclass(frozen=True)
class LlamaSizes:
    """What a llama is built from.

    Args:
        vocabulary: Tokens.
        blocks: Pairs of attention and feed-forward layer.
        width: Numbers per token between blocks.
        hidden: Numbers inside the feed-forward layers.
        heads: Queries of a token.
        key_heads: Keys and values of a token, each for as many queries.
        base: Of the wavelengths of rotary positions.
        epsilon: Added to the mean square in norms.
        tied: Whether embeddings are the output layer, too.
    """

    vocabulary: int
    blocks: int
    width: int
    hidden: int
    heads: int
    key_heads: int
    base: float = 10_000.0
    epsilon: float = 1e-5
    tied: bool = True

    def __post_init__(self) -> None:
        if self.width % (2 * self.heads) or self.heads % self.key_heads:
            raise ConfigError(
                f"a llama's heads have an even width and share keys evenly, got width {self.width},"
                f" {self.heads} heads and {self.key_heads} key heads"
            )

    @property
    def head(self) -> int:
        """Numbers of a head."""
        return self.width // self.heads


class Llama(nn.Module):
    """From tokens (batch, length) to states (batch, length, width)."""

    def __init__(self, sizes: LlamaSizes) -> None:
        super().__init__()
        self.sizes = sizes
        self.token_embd = nn.Embedding(sizes.vocabulary, sizes.width)
        self.blk = nn.ModuleList(Block(sizes) for _ in range(sizes.blocks))
        self.output_norm = nn.RMSNorm(sizes.width, sizes.epsilon)
        if not sizes.tied:
            self.output = nn.Linear(sizes.width, sizes.vocabulary, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        """The states after the last norm; a token sees itself and those before it."""
        turns = turn_angles(tokens.shape[1], self.sizes.head, self.sizes.base)
        cosine, sine = (part.to(self.token_embd.weight) for part in (turns.cos(), turns.sin()))
        x = self.token_embd(tokens)
        for block in self.blk:
            x = block(x, cosine, sine)
        states: Tensor = self.output_norm(x)
        return states

    def predict(self, states: Tensor) -> Tensor:
        """The logits (batch, length, vocabulary) of the token that follows each."""
        output = self.token_embd if self.sizes.tied else self.output
        return linear(states, output.weight)


class Block(nn.Module):
    """An attention and a feed-forward layer, each added to its input."""

    def __init__(self, sizes: LlamaSizes) -> None:
        super().__init__()
        width, hidden, keys = sizes.width, sizes.hidden, sizes.key_heads * sizes.head
        self.head = sizes.head
        self.attn_norm = nn.RMSNorm(width, sizes.epsilon)
        self.attn_q = nn.Linear(width, width, bias=False)
        self.attn_k = nn.Linear(width, keys, bias=False)
        self.attn_v = nn.Linear(width, keys, bias=False)
        self.attn_output = nn.Linear(width, width, bias=False)
        self.ffn_norm = nn.RMSNorm(width, sizes.epsilon)
        self.ffn_gate = nn.Linear(width, hidden, bias=False)
        self.ffn_up = nn.Linear(width, hidden, bias=False)
        self.ffn_down = nn.Linear(hidden, width, bias=False)

    def forward(self, x: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
        """The next states (batch, length, width)."""
        x = x + self._attend(self.attn_norm(x), cosine, sine)
        seen = self.ffn_norm(x)
        added: Tensor = self.ffn_down(silu(self.ffn_gate(seen)) * self.ffn_up(seen))
        return x + added

    def _attend(self, x: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
        projections = (self.attn_q, self.attn_k, self.attn_v)
        query, key, value = (
            project(x).unflatten(-1, (-1, self.head)).transpose(1, 2) for project in projections
        )
        query, key = turn(query, cosine, sine), turn(key, cosine, sine)
        seen = scaled_dot_product_attention(query, key, value, is_causal=True, enable_gqa=True)
        mixed: Tensor = self.attn_output(seen.transpose(1, 2).flatten(2))
        return mixed


def turn_angles(length: int, head: int, base: float) -> Tensor:
    """The angles (length, head / 2) by which the pairs of numbers of each position turn."""
    speeds = base ** -(torch.arange(0, head, 2, dtype=torch.float64) / head)
    return torch.arange(length, dtype=torch.float64)[:, None] * speeds


def turn(x: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
    """Turn neighboring numbers (..., length, head) by the angle of their position."""
    first, second = x[..., 0::2], x[..., 1::2]
    turned = (first * cosine - second * sine, first * sine + second * cosine)
    return torch.stack(turned, dim=-1).flatten(-2)
