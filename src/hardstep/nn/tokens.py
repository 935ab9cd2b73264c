"""Attention between the tokens of a sequence, and an encoder layer around it.

    per head, with s = q k^T / sqrt(d) over all keys that are no padding
    hard   out_i = v_j,  j = argmax_j s_ij
    smooth out_i = sum_j p_ij v_j,  p = softmax(s)

A layer is h = norm(x + attention(x)), then norm(h + W' relu(W h)).
"""

from abc import ABC, abstractmethod

import torch
from torch import Tensor, nn
from torch.nn.functional import relu

from hardstep._checks import check_count
from hardstep.errors import ConfigError


class _SelfAttention(nn.Module, ABC):
    """Queries, keys and values of tokens; subclasses say how scores become one value.

    Args:
        width: Numbers of a token.
        heads: Parts of a token, equally wide, that attend on their own.
    """

    def __init__(self, width: int = 128, heads: int = 2) -> None:
        super().__init__()
        name = type(self).__name__
        check_count(f"{name}: width", width)
        check_count(f"{name}: heads", heads)
        if width % heads:
            raise ConfigError(f"{name}: width must be a multiple of heads, got {width} and {heads}")
        self.width, self.heads = width, heads
        self.queries, self.keys = nn.Linear(width, width), nn.Linear(width, width)
        self.values, self.outputs = nn.Linear(width, width), nn.Linear(width, width)

    @abstractmethod
    def select(self, scores: Tensor, values: Tensor) -> Tensor:
        """Values (..., queries, d) from scores (..., queries, keys) and values (..., keys, d)."""

    def forward(self, tokens: Tensor, is_padding: Tensor) -> Tensor:
        """What tokens (batch, length, width) read from those that are no padding (batch, length).

        Every sequence needs a token that is none.
        """
        q, k, v = (self._split(layer(tokens)) for layer in (self.queries, self.keys, self.values))
        scores = q @ k.transpose(-2, -1) / q.shape[-1] ** 0.5
        scores = scores.masked_fill(is_padding[:, None, None], -torch.inf)
        read = self.select(scores, v).transpose(1, 2)
        output: Tensor = self.outputs(read.reshape(tokens.shape))
        return output

    def _split(self, tokens: Tensor) -> Tensor:
        """(batch, heads, length, width / heads)."""
        return tokens.reshape(*tokens.shape[:2], self.heads, -1).transpose(1, 2)


class ArgmaxSelfAttention(_SelfAttention):
    """Hard attention: a token reads one token per head, and no gradient reaches the choice."""

    def select(self, scores: Tensor, values: Tensor) -> Tensor:
        """The value of the best key; ties go to the first."""
        best = scores.argmax(dim=-1, keepdim=True)
        return values.gather(-2, best.expand(*best.shape[:-1], values.shape[-1]))


class SoftmaxSelfAttention(_SelfAttention):
    """The usual attention, and the twin of `ArgmaxSelfAttention` for backpropagation."""

    def select(self, scores: Tensor, values: Tensor) -> Tensor:
        """The average value by softmax weights."""
        return torch.softmax(scores, dim=-1) @ values


class EncoderLayer(nn.Module):
    """Attention between tokens, then two linear layers for each of them.

    Args:
        attention: `SoftmaxSelfAttention` or `ArgmaxSelfAttention`.
        hidden: Units between the two linear layers.
    """

    def __init__(self, attention: _SelfAttention, hidden: int = 256) -> None:
        super().__init__()
        check_count("EncoderLayer: hidden", hidden)
        width = attention.width
        self.attention = attention
        self.up, self.down = nn.Linear(width, hidden), nn.Linear(hidden, width)
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)

    def forward(self, tokens: Tensor, is_padding: Tensor) -> Tensor:
        """Tokens (batch, length, width); what comes out for padding means nothing."""
        attended = self.norm1(tokens + self.attention(tokens, is_padding))
        output: Tensor = self.norm2(attended + self.down(relu(self.up(attended))))
        return output
