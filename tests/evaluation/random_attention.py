"""Networks of tokens, drawn at random: attention of every make, embeddings, masks, norms."""

import random

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hardstep.evaluation import Problem
from hardstep.nn import build

WORDS, CLASSES = 9, 3


class Heads(nn.Module):
    """Attention written out, with softmax or with the best token alone."""

    def __init__(self, width: int, heads: int, hard: bool) -> None:
        super().__init__()
        self.q, self.k, self.v = (nn.Linear(width, width) for _ in range(3))
        self.out, self.heads, self.hard = nn.Linear(width, width), heads, hard

    def forward(self, x: Tensor, mask: Tensor | None) -> Tensor:
        batch, tokens, width = x.shape
        shape = (batch, tokens, self.heads, width // self.heads)
        q, k, v = (layer(x).view(shape).transpose(1, 2) for layer in (self.q, self.k, self.v))
        scores = q @ k.transpose(-2, -1) / shape[-1] ** 0.5
        if mask is not None:
            scores = scores.masked_fill(mask[:, None, None, :], -1e9)
        if self.hard:
            best = scores.argmax(dim=-1, keepdim=True).expand(-1, -1, -1, shape[-1])
            mixed = v.gather(2, best)
        else:
            mixed = scores.softmax(dim=-1) @ v
        return self.out(mixed.transpose(1, 2).reshape(batch, tokens, width))


class Fused(nn.Module):
    """Attention as torch has it: one function, causal or with a mask of numbers."""

    def __init__(self, width: int, causal: bool) -> None:
        super().__init__()
        self.qkv, self.out, self.causal = (
            nn.Linear(width, 3 * width),
            nn.Linear(width, width),
            causal,
        )

    def forward(self, x: Tensor, mask: Tensor | None) -> Tensor:
        q, k, v = self.qkv(x).chunk(3, dim=-1)
        added = None if mask is None or self.causal else -5.0 * mask[:, None, :].to(x.dtype)
        found = F.scaled_dot_product_attention(q, k, v, added, is_causal=self.causal)
        return self.out(found)


class Whole(nn.Module):
    """`nn.MultiheadAttention`, with or without the weights it can return."""

    def __init__(self, width: int, weights: bool) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(width, 2, dropout=0.2, batch_first=True)
        self.weights = weights

    def forward(self, x: Tensor, mask: Tensor | None) -> Tensor:
        return self.attention(x, x, x, mask, need_weights=self.weights)[0]


class Block(nn.Module):
    """Attention and a layer for every token, each beside a shortcut."""

    def __init__(self, attention: nn.Module, width: int, first: bool) -> None:
        super().__init__()
        self.attention, self.first = attention, first
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.up, self.down = nn.Linear(width, 6), nn.Linear(6, width, bias=False)

    def forward(self, x: Tensor, mask: Tensor | None) -> Tensor:
        if self.first:
            x = x + self.attention(self.norm1(x), mask)
            return x + self.down(F.gelu(self.up(self.norm2(x))))
        x = self.norm1(x + self.attention(x, mask))
        return self.norm2(x + self.down(F.relu(self.up(x))))


class Layer(nn.Module):
    """`nn.TransformerEncoderLayer`."""

    def __init__(self, width: int, first: bool) -> None:
        super().__init__()
        options = {"batch_first": True, "norm_first": first, "activation": F.gelu}
        self.layer = nn.TransformerEncoderLayer(width, 2, 6, 0.2, **options)

    def forward(self, x: Tensor, mask: Tensor | None) -> Tensor:
        return self.layer(x, src_key_padding_mask=mask)


ATTENTION = {
    "soft heads": lambda width, first: Block(Heads(width, 2, hard=False), width, first),
    "hard heads": lambda width, first: Block(Heads(width, 2, hard=True), width, first),
    "causal": lambda width, first: Block(Fused(width, causal=True), width, first),
    "added mask": lambda width, first: Block(Fused(width, causal=False), width, first),
    "attention": lambda width, first: Block(Whole(width, weights=False), width, first),
    "attention weights": lambda width, first: Block(Whole(width, weights=True), width, first),
    "encoder layer": Layer,
}
ENDINGS = ("mean", "first", "last", "class token", "max", "every token", "tied")


class RandomNetwork(nn.Module):
    """Words or numbers in, a few layers, and a readout."""

    def __init__(self, draw: random.Random) -> None:
        super().__init__()
        width, self.tokens = 4, draw.choice([1, 3, 5])
        self.kinds = [draw.choice(list(ATTENTION)) for _ in range(draw.randint(1, 2))]
        self.layers = nn.ModuleList(ATTENTION[k](width, draw.random() < 0.5) for k in self.kinds)
        self.ending = draw.choice(ENDINGS)
        self.words = self.ending == "tied" or draw.random() < 0.6
        self.masked = self.words and draw.random() < 0.6
        padding = draw.choice([None, 0])
        self.embed = nn.Embedding(WORDS, width, padding) if self.words else nn.Linear(2, width)
        self.position = nn.Parameter(torch.randn(self.tokens, width))
        self.token = (
            nn.Parameter(torch.randn(1, 1, width)) if self.ending == "class token" else None
        )
        self.readout = nn.Linear(width, CLASSES) if self.ending != "tied" else None

    def forward(self, x: Tensor) -> Tensor:
        mask = (x == 0) & (torch.arange(self.tokens) > 0) if self.masked else None
        h = self.embed(x) + self.position
        if self.token is not None:
            h = torch.cat([self.token.expand(len(x), -1, -1), h], dim=1)
            mask = mask if mask is None else F.pad(mask, (1, 0))
        for layer in self.layers:
            h = layer(h, mask)
        if self.ending == "tied":
            return (h @ self.embed.weight.t()).flatten(0, 1)
        ends = {"mean": lambda: h.mean(dim=1), "last": lambda: h[:, -1], "max": lambda: h.amax(1)}
        ends["every token"] = lambda: h.flatten(0, 1)
        return self.readout(ends.get(self.ending, lambda: h[:, 0])())


def draw_problem(seed: int, dtype: torch.dtype = torch.float64) -> tuple[Problem, list[str]]:
    """A network, a batch for it, and what it is made of."""
    draw = random.Random(seed)
    model = build(lambda: RandomNetwork(draw), seed).to(dtype).train(draw.random() < 0.5)
    generator = torch.Generator().manual_seed(seed)
    batch = draw.choice([1, model.tokens, 4, 6])
    if model.words:
        inputs = torch.randint(WORDS - 2, (batch, model.tokens), generator=generator)
        inputs[:, 0] = 1  # a word of every example; the last two are of none
    else:
        inputs = torch.randn(batch, model.tokens, 2, generator=generator, dtype=dtype)
    each = model.tokens if model.ending in ("tied", "every token") else 1
    target = (torch.arange(batch)[:, None] + torch.arange(each)) % CLASSES
    names = [*model.kinds, model.ending, "words" if model.words else "numbers"]
    loss = cross_entropy_by_token if each > 1 else F.cross_entropy
    return Problem(model, inputs, target if each > 1 else target[:, 0], loss), names


def cross_entropy_by_token(scores: Tensor, target: Tensor) -> Tensor:
    return F.cross_entropy(scores, target.flatten(), ignore_index=2)
