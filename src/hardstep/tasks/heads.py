"""Tasks that put a small head on the features of a frozen model.

    head-smooth   a linear layer
    head-int8     its weights and biases rounded to multiples of 0.01, eight bits
    head-binary   its weights signs, its biases continuous

The features are those of SST-2's sentences (`hardstep.data.sst2_embeddings`). Settings were chosen
on validation with seed 7 at 500,000 evaluations, the budget of all methods in the comparison.
"""

from functools import partial

from torch import nn

from hardstep.data import SST2_WIDTH, sst2_embeddings
from hardstep.nn import Binary, Identity, Quantize, Relaxed, TransformedLinear, WeightTransform
from hardstep.optim import FullDecay, Settings, WeightMomentum
from hardstep.optim.presets import warm
from hardstep.schedules import Cosine
from hardstep.subspaces import RowWise
from hardstep.tasks.task import Task

DATA = "sst2-minilm"
BUDGET = 500_000  # evaluations


def _settings(steps: int) -> Settings:
    """Steps like a gradient's over whole rows, averaged over some thirty of them."""
    rules = (WeightMomentum(0.97), FullDecay(Cosine(4e-4, 1e-5, steps)))
    return warm(steps, temperature=0.2).changed(subspace=RowWise(None), rules=rules)


def linear_head(transform: WeightTransform, smooth: bool = False) -> nn.Module:
    """A linear layer whose weights pass through the transform; smooth leaves them as they are."""
    return TransformedLinear(SST2_WIDTH, 2, transform=Relaxed(transform) if smooth else transform)


def _head(kind: str, title: str, transform: WeightTransform) -> Task:
    return Task(
        name=f"head-{kind}",
        title=f"{title} on frozen MiniLM features of SST-2",
        data=sst2_embeddings,
        model=partial(linear_head, transform),
        settings=_settings,
        steps=566,
        batch_size=64,
        twin=partial(linear_head, transform, smooth=True),
        data_name=DATA,
    )


HEADS = {
    task.name: task
    for task in (
        _head("smooth", "linear head", Identity()),
        _head("int8", "INT8 head", Quantize()),
        _head("binary", "binary head", Binary()),
    )
}
