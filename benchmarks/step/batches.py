"""What both sides evaluate on: pictures of MNIST, or inputs that resemble them.

Where `HARDSTEP_DATA` names a folder with MNIST, a batch is taken from its training pictures;
elsewhere it is drawn, so that the benchmark runs without data: a fifth of the pixels carry ink, the
others have the value of the background. Drawn pictures have ink everywhere, while a quarter of
MNIST's pixels is background in all pictures of a batch, which our evaluator makes use of; so every
record says which it was. A seed fixes the batch in both processes; every repeat uses another one,
so that nothing can be carried over from the step before. Labels are drawn: they cost the same.

Networks that are trained for a few steps before they are timed need labels to learn (`labeled`):
those of MNIST, or which tenth of a drawn picture has the most ink.
"""

import gzip
import os
from functools import cache
from pathlib import Path

import torch
from torch import Tensor

from benchmarks.step.models import INPUTS

MEAN, SPREAD, INK = 0.1307, 0.3081, 0.2
PICTURES = Path("mnist") / "train-images-idx3-ubyte.gz"
LABELS = Path("mnist") / "train-labels-idx1-ubyte.gz"
HEADER = 16  # bytes before the pixels
LABEL_HEADER = 8
SIDE, CLASSES = 28, 10


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
