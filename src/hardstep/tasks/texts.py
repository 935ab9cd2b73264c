"""Tasks that classify sentences by a transformer whose words are trained from scratch.

    sst2         the paper's transformer on SST-2: praise or blame in film reviews
    sst2-argmax  every head of every token reads one token, chosen by argmax
    reviews      a small one on reviews made here, for a first try

A probe of a word's vector changes the sentences with that word alone, so that all words of a batch
are searched at every step. Units of the other layers take turns.
"""

from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from hardstep.data import DataSet, Split, load_reviews, load_sst2, reviews, sst2
from hardstep.data.text import LONGEST, PADDING, UNKNOWN, Corpus
from hardstep.evaluation import call_model, isolate
from hardstep.geometry import Simplex
from hardstep.nn import ArgmaxSelfAttention, EncoderLayer, SoftmaxSelfAttention
from hardstep.optim import Settings
from hardstep.schedules import Cosine, Length
from hardstep.subspaces import Full, PerTensor, RowWise, Scaled, Sketch
from hardstep.tasks.task import Task

Attention = Callable[[int, int], SoftmaxSelfAttention | ArgmaxSelfAttention]
INITIAL = 0.02  # deviation of the vectors of places and of the class token
SHOWN = 12  # words of each class in a picture


class TransformerClassifier(nn.Module):
    """A class token reads the words of a sentence, and a linear layer reads the class token.

    The defaults are the paper's. Sentences are cut to the longest of the batch; padding changes
    nothing.

    Args:
        words: Numbers of the vocabulary; 0 is padding, at the end of sentences.
        width: Numbers of a token.
        layers: Encoder layers.
        heads: Of every attention.
        hidden: Units of every layer's feed-forward part.
        attention: Of (width, heads).
        classes: To tell apart.
        longest: Words that are read.
    """

    def __init__(
        self,
        words: int,
        width: int = 128,
        layers: int = 2,
        heads: int = 2,
        hidden: int = 256,
        attention: Attention = SoftmaxSelfAttention,
        classes: int = 2,
        longest: int = LONGEST,
    ) -> None:
        super().__init__()
        self.words = nn.Embedding(words, width)
        self.places = nn.Parameter(INITIAL * torch.randn(longest + 1, width))
        self.token = nn.Parameter(INITIAL * torch.randn(width))
        self.layers = nn.ModuleList(
            EncoderLayer(attention(width, heads), hidden) for _ in range(layers)
        )
        self.readout = nn.Linear(width, classes)
        self.longest = longest

    def forward(self, sentences: Tensor) -> Tensor:
        """Scores (batch, classes) of sentences (batch, length)."""
        read = sentences[:, : min(self.longest, find_longest(sentences))]
        token = self.token.expand(len(read), 1, -1)
        tokens = torch.cat([token, self.words(read)], dim=1) + self.places[: read.shape[1] + 1]
        is_padding = pad(read == PADDING, (1, 0))  # the class token is none
        for layer in self.layers:
            tokens = layer(tokens, is_padding)
        scores: Tensor = self.readout(tokens[:, 0])
        return scores


def find_longest(sentences: Tensor) -> int:
    """The length of the longest of these sentences without its padding."""
    return int((sentences != PADDING).any(dim=0).sum())


@torch.no_grad()
def draw_words(axes: Any, model: nn.Module, split: Split, corpus: Callable[[], Corpus]) -> None:
    """The words of these sentences that speak most for either class, each read alone."""
    from hardstep.tasks.plots import ACCENT, INK

    vocabulary = corpus().vocabulary
    numbers = torch.unique(split.inputs)
    numbers = numbers[numbers > UNKNOWN]
    with isolate(model):
        model.eval()
        scores = call_model(model, numbers[:, None])
    favors = (scores[:, 1] - scores[:, 0]).sort()
    ends = torch.cat([torch.arange(SHOWN), torch.arange(len(numbers) - SHOWN, len(numbers))])
    chosen = torch.unique(ends.clamp(0, len(numbers) - 1))
    names = [vocabulary.name(int(numbers[i])) for i in favors.indices[chosen]]
    values = favors.values[chosen]
    colors = [ACCENT if value < 0 else INK for value in values]
    axes.barh(range(len(names)), values.numpy(), color=colors)
    axes.set_yticks(range(len(names)), names, fontsize=7)
    axes.set(xlabel="score of class 1 minus score of class 0")
    title = f"{len(names)} of {len(numbers):,} words of validation, each alone"
    axes.set_title(title, loc="left", fontsize=10)


def words_and_turns(steps: int) -> Settings:
    """The words of a batch at every step, units of the layers in turns.

    A word moves in a plane of its own, the same for the whole run, so that what it has learned
    stays. A plane holds little of the direction that the readout sees, so words go far. Tensors
    behind them go shorter ways: the more examples a change reaches, the shorter. The temperature is
    low, since a word that occurs once changes the loss of a batch by a thousandth.
    """
    vectors = Scaled(Sketch(Full()), 5e-3)
    return Settings(
        subspace=PerTensor(
            {
                "words.*": RowWise(1),
                "readout.*": Scaled(RowWise(None), 5e-4),
                "token": vectors,
                "*norm*": vectors,
                "*": Scaled(RowWise(1, redraw=1, share=0.008), 5e-4),
            }
        ),
        polytope=Simplex(2),
        temperature=3e-5,
        step_radius=Length(Cosine(40.0, 4.0, steps)),
        probe_radius=Length(2.0),
    )


def _classify(
    name: str,
    title: str,
    load: Callable[[], Corpus],
    data: Callable[[int], DataSet],
    attention: Attention = SoftmaxSelfAttention,
    sizes: Mapping[str, int] = MappingProxyType({}),
    **options: Any,
) -> Task:
    def build(kind: Attention) -> TransformerClassifier:
        return TransformerClassifier(len(load().vocabulary), attention=kind, **sizes)

    return Task(
        name=name,
        title=title,
        data=data,
        model=partial(build, attention),
        twin=partial(build, SoftmaxSelfAttention),
        panel=partial(draw_words, corpus=load),
        data_name=data.__name__,
        **{"settings": words_and_turns, "steps": 600, "batch_size": 256, **options},
    )


TEXTS = {
    task.name: task
    for task in (
        _classify("sst2", "transformer of 2 layers, SST-2", load_sst2, sst2),
        _classify(
            "sst2-argmax",
            "transformer of 2 layers with argmax attention, SST-2",
            load_sst2,
            sst2,
            ArgmaxSelfAttention,
        ),
        _classify(
            "reviews",
            "transformer of 1 layer, reviews made here",
            load_reviews,
            reviews,
            sizes={"width": 16, "layers": 1, "hidden": 32},
            steps=40,
            batch_size=128,
        ),
    )
}
