"""How many pairs of mirrored probes tell nothing: L(θ + μz) = L(θ − μz), bit for bit.

z ~ N(0, I) over all weights, as in methods that estimate a slope from two losses (MeZO, SPSA, with
antithetic samples evolution strategies). Where the loss jumps and μ is small, both probes lie on
the same flat piece and the estimate is exactly zero.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

from hardstep import seeds
from hardstep._checks import check_count, check_positive
from hardstep.evaluation import LossFunction, isolate
from hardstep.subspaces import trainable

RADII = (1e-5, 1e-3, 2e-2)  # of the paper
PAIRS = 200


@torch.no_grad()
def count_flat_pairs(
    model: nn.Module,
    batches: Sequence[tuple[Any, Any]],
    loss_fn: LossFunction,
    radii: Sequence[float] = RADII,
    num: int = PAIRS,
    seed: int = 0,
) -> dict[float, float]:
    """The share of pairs with the same loss, by radius.

    Args:
        model: Any model; nothing of it is changed.
        batches: Pairs (inputs, target), in turn.
        loss_fn: Of (output, target).
        radii: Values of μ.
        num: Pairs at each of them, the same directions at all.
        seed: Of the directions.
    """
    check_count("count_flat_pairs: num", num)
    for radius in radii:
        check_positive("count_flat_pairs: radius", radius)
    tensors = trainable(model)
    found = dict.fromkeys(radii, 0)
    for number in range(num):
        directions = _draw(tensors, seed, number)
        batch = batches[number % len(batches)]
        for radius in radii:
            ends = [
                _loss(model, tensors, directions, sign * radius, batch, loss_fn)
                for sign in (1.0, -1.0)
            ]
            found[radius] += torch.equal(*ends)
    return {radius: count / num for radius, count in found.items()}


def _draw(tensors: Mapping[str, Tensor], seed: int, number: int) -> dict[str, Tensor]:
    generator = seeds.generator(seed, "flat pairs", number)
    return {
        name: torch.randn(tensor.shape, generator=generator).to(tensor)
        for name, tensor in tensors.items()
    }


def _loss(
    model: nn.Module,
    tensors: Mapping[str, Tensor],
    directions: Mapping[str, Tensor],
    length: float,
    batch: tuple[Any, Any],
    loss_fn: LossFunction,
) -> Tensor:
    moved = {name: tensor + length * directions[name] for name, tensor in tensors.items()}
    kept = {name: buffer.clone() for name, buffer in model.named_buffers()}
    with isolate(model):
        output = functional_call(model, {**kept, **moved}, (batch[0],))
    return torch.as_tensor(loss_fn(output, batch[1])).detach()
