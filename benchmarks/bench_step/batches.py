"""Inputs that look like MNIST to a processor: mostly background, standardised.

Drawn, not read, so that the benchmark needs no data: a fifth of the pixels carry ink, the others
have the value MNIST's background takes after standardising. A seed fixes the batch in both
processes; every repeat uses another one, so that nothing can be carried over from the step before.
"""

import torch
from torch import Tensor

from bench_step.models import INPUTS

MEAN, SPREAD, INK = 0.1307, 0.3081, 0.2


def batch(seed: int, size: int, classes: int) -> tuple[Tensor, Tensor]:
    """Pixels (size, 784) and labels (size,)."""
    generator = torch.Generator().manual_seed(seed)
    ink = torch.rand(size, INPUTS, generator=generator) < INK
    pixels = torch.rand(size, INPUTS, generator=generator) * ink
    labels = torch.randint(classes, (size,), generator=generator)
    return (pixels - MEAN) / SPREAD, labels
