"""Tasks that put a small head on the features of a frozen model.

    head-smooth   a linear layer
    head-int8     its weights and biases rounded to multiples of 0.01, eight bits
    head-binary   its weights signs, its biases continuous

The features are those of SST-2's sentences, from MiniLM (`hardstep.data.sst2_embeddings`) or from a
language model (`sst2_states`). Settings were chosen on validation with MiniLM's, seeds 7 and 8, at
500,000 evaluations, the budget of all methods in the comparison. Signs want shorter probes, and
decay, so that they can turn. The language model's are standardized and of length one, too; the
settings were taken over.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

from torch import nn

from hardstep.data import (
    SST2_MINILM,
    SST2_SMOLLM2,
    DataSet,
    Features,
    sst2_embeddings,
    sst2_states,
)
from hardstep.nn import Binary, Identity, Quantize, Relaxed, TransformedLinear, WeightTransform
from hardstep.optim import FullDecay, Settings, WeightMomentum
from hardstep.optim.presets import warm
from hardstep.schedules import Cosine
from hardstep.subspaces import RowWise
from hardstep.tasks.task import Task

BUDGET = 500_000  # evaluations


def _settings(steps: int, decay: float = 4e-4, **options: Any) -> Settings:
    """Steps like a gradient's over whole rows, averaged over some thirty of them."""
    rules = (WeightMomentum(0.97), FullDecay(Cosine(decay, 0.025 * decay, steps)))
    return warm(steps, **options).changed(subspace=RowWise(None), rules=rules)


_signs = partial(_settings, decay=2e-3, temperature=0.03, step_radius=0.1, probe_radius=0.3)


def linear_head(width: int, transform: WeightTransform, smooth: bool = False) -> nn.Module:
    """A linear layer whose weights pass through the transform; smooth leaves them as they are."""
    return TransformedLinear(width, 2, transform=Relaxed(transform) if smooth else transform)


def _heads(features: Features, data: Callable[[int], DataSet], steps: int) -> dict[str, Task]:
    """The tasks on features, in as many steps as the budget pays for."""

    def head(
        kind: str, title: str, transform: WeightTransform, settings: Callable[[int], Settings]
    ) -> Task:
        return Task(
            name=f"head-{kind}",
            title=f"{title} on frozen {features.model} features of SST-2",
            data=data,
            model=partial(linear_head, features.width, transform),
            settings=settings,
            steps=steps,
            batch_size=64,
            twin=partial(linear_head, features.width, transform, smooth=True),
            data_name=features.name,
        )

    tasks = (
        head("smooth", "linear head", Identity(), partial(_settings, temperature=0.2)),
        head("int8", "INT8 head", Quantize(), _settings),
        head("binary", "binary head", Binary(), _signs),
    )
    return {task.name: task for task in tasks}


HEADS = _heads(SST2_MINILM, sst2_embeddings, steps=566)
SMOLLM2_HEADS = _heads(SST2_SMOLLM2, sst2_states, steps=380)
