"""Networks of tokens, in plain torch: the rows of the second table on attention and embeddings.

    attention     one block of attention over the 28 rows of a picture: the best row, or softmax
    transformer   the paper's: two encoder layers, words in, a learned class token classifies

They are written as one writes them, with nothing that would help an evaluator.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

ROWS, CLASSES = 28, 10
WORDS, TOKENS, LONGEST = 30_522, 64, 128  # of the vocabulary, of a batch, and at most


class Attention(nn.Module):
    """Attention over the rows of a picture, a layer for every row, the mean is classified."""

    def __init__(self, hard: bool, width: int = 64) -> None:
        super().__init__()
        self.hard = hard
        self.embed = nn.Linear(ROWS, width)
        self.position = nn.Parameter(0.02 * torch.randn(ROWS, width))
        self.q, self.k, self.v = (nn.Linear(width, width) for _ in range(3))
        self.out = nn.Linear(width, width)
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)
        self.readout = nn.Linear(width, CLASSES)

    def forward(self, pictures: Tensor) -> Tensor:
        """Scores (batch, classes)."""
        h = self.embed(pictures.squeeze(1)) + self.position
        q, k, v = self.q(h), self.k(h), self.v(h)
        scores = q @ k.transpose(1, 2) / q.shape[-1] ** 0.5
        if self.hard:
            best = scores.argmax(dim=-1, keepdim=True)
            mixed = v.gather(1, best.expand_as(v))
        else:
            mixed = scores.softmax(dim=-1) @ v
        h = self.norm1(h + self.out(mixed))
        h = self.norm2(h + self.down(F.relu(self.up(h))))
        return self.readout(h.mean(dim=1))


class Transformer(nn.Module):
    """The paper's classifier of sentences."""

    def __init__(self, width: int = 128) -> None:
        super().__init__()
        self.embedding = nn.Embedding(WORDS, width, padding_idx=0)
        self.position = nn.Parameter(0.02 * torch.randn(LONGEST, width))
        self.token = nn.Parameter(0.02 * torch.randn(1, 1, width))
        layer = nn.TransformerEncoderLayer(width, 2, 2 * width, 0.0, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.readout = nn.Linear(width, 2)

    def forward(self, words: Tensor) -> Tensor:
        """Scores (batch, 2) of words (batch, tokens), zero where a sentence is over."""
        h = torch.cat([self.token.expand(len(words), -1, -1), self.embedding(words)], dim=1)
        over = F.pad(words == 0, (1, 0))
        h = self.encoder(h + self.position[: h.shape[1]], src_key_padding_mask=over)
        return self.readout(h[:, 0])
