"""What both sides evaluate on: pictures of MNIST, or inputs that resemble them.

Where `HARDSTEP_DATA` names a folder with MNIST, a batch is taken from its training pictures;
elsewhere it is drawn, so that the benchmark runs without data: a fifth of the pixels carry ink, the
others have the value of the background. Drawn pictures have ink everywhere, while a quarter of
MNIST's pixels is background in all pictures of a batch, which our evaluator makes use of; so every
record says which it was. A seed fixes the batch in both processes; every repeat uses another one,
so that nothing can be carried over from the step before. Labels are drawn: they cost the same.

Networks that are trained for a few steps before they are timed need labels to learn (`labeled`):
those of MNIST, or which tenth of a drawn picture has the most ink. Networks that read words get
sentences of SST-2 from the same folder, or words drawn by how frequent words are.
"""

import gzip
import os
from collections import Counter
from functools import cache
from pathlib import Path

import torch
from torch import Tensor

from benchmarks.step.models import INPUTS
from benchmarks.step.token_networks import TOKENS, WORDS

MEAN, SPREAD, INK = 0.1307, 0.3081, 0.2
PICTURES = Path("mnist") / "train-images-idx3-ubyte.gz"
LABELS = Path("mnist") / "train-labels-idx1-ubyte.gz"
HEADER = 16  # bytes before the pixels
LABEL_HEADER = 8
SIDE, CLASSES = 28, 10
SENTENCES = Path("sst2") / "train.tsv.gz"
LENGTH = TOKENS - 1  # words of a sentence, beside the token that classifies it


def origin() -> str:
    """Where batches come from."""
    return "drawn" if _file() is None else "MNIST"


def batch(seed: int, size: int, classes: int) -> tuple[Tensor, Tensor]:
    """Pixels (size, 784) and labels (size,)."""
    generator = torch.Generator().manual_seed(seed)
    if origin() == "MNIST":
        known = _pictures()
        chosen = torch.randint(len(known), (size,), generator=generator)
        pixels = known[chosen].float() / 255
    else:
        ink = torch.rand(size, INPUTS, generator=generator) < INK
        pixels = torch.rand(size, INPUTS, generator=generator) * ink
    labels = torch.randint(classes, (size,), generator=generator)
    return (pixels - MEAN) / SPREAD, labels


def labeled(seed: int, size: int) -> tuple[Tensor, Tensor]:
    """Pictures (size, 1, 28, 28) with labels that can be learned."""
    pixels, _ = batch(seed, size, CLASSES)
    pictures = pixels.reshape(-1, 1, SIDE, SIDE)
    if origin() == "MNIST":
        generator = torch.Generator().manual_seed(seed)
        known = _labels()
        return pictures, known[torch.randint(len(known), (size,), generator=generator)].long()
    tenths = pixels.tensor_split(CLASSES, dim=1)
    return pictures, torch.stack([part.mean(dim=1) for part in tenths], dim=1).argmax(dim=1)


def read_words(seed: int, size: int) -> tuple[Tensor, Tensor]:
    """Numbers of words (size, 63) with labels: of SST-2, or drawn as rare as words are."""
    generator = torch.Generator().manual_seed(seed)
    if _file(SENTENCES) is not None:
        known, labels = _sentences()
        chosen = torch.randint(len(known), (size,), generator=generator)
        return known[chosen], labels[chosen]
    rarity = 1 / torch.arange(1, WORDS, dtype=torch.float64)
    words = 1 + torch.multinomial(rarity, size * LENGTH, True, generator=generator)
    ends = torch.randint(2, LENGTH + 1, (size, 1), generator=generator)
    words = words.reshape(size, LENGTH) * (torch.arange(LENGTH) < ends)
    return words, (words % 2).sum(dim=1) % 2


READ = {"pictures": labeled, "words": read_words}  # batches by what a network reads


@cache
def _sentences() -> tuple[Tensor, Tensor]:
    """All training sentences, numbered by how frequent words are, and their labels."""
    file = _file(SENTENCES)
    assert file is not None
    lines = gzip.decompress(file.read_bytes()).decode().splitlines()[1:]
    pairs = [line.rsplit("\t", 1) for line in lines]
    texts = [text.split()[:LENGTH] for text, _ in pairs]
    ranked = Counter(word for text in texts for word in text).most_common(WORDS - 1)
    number = {word: place for place, (word, _) in enumerate(ranked, start=1)}
    words = torch.zeros(len(texts), LENGTH, dtype=torch.long)
    for row, text in zip(words, texts, strict=True):
        row[: len(text)] = torch.tensor([number.get(word, 0) for word in text])
    return words, torch.tensor([int(label) for _, label in pairs])


def _file(name: Path = PICTURES) -> Path | None:
    folder = os.environ.get("HARDSTEP_DATA")
    found = Path(folder) / name if folder else None
    return found if found is not None and found.is_file() else None


@cache
def _pictures() -> Tensor:
    """All training pictures as bytes; read here since their environment has no hardstep."""
    return _bytes(PICTURES, HEADER).reshape(-1, INPUTS)


@cache
def _labels() -> Tensor:
    return _bytes(LABELS, LABEL_HEADER)


def _bytes(name: Path, header: int) -> Tensor:
    file = _file(name)
    assert file is not None
    content = bytearray(gzip.decompress(file.read_bytes()))
    return torch.frombuffer(content, dtype=torch.uint8, offset=header)
