"""Put a one-bit head on features of a frozen model.

    python examples/one_bit_head.py

The frozen model here is a random layer with a ReLU; yours may be anything that turns examples into
vectors. Every weight of the head is +1 or -1, so its gradient is zero.
"""

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, normalize

import hardstep
from hardstep.data import Batches, Split, digits
from hardstep.nn import Binary, TransformedLinear


@torch.no_grad()
def embed(frozen: nn.Module, split: Split) -> Split:
    """The examples as the frozen model sees them, computed once."""
    features: Tensor = normalize(frozen(split.inputs))
    return Split(features, split.labels)


def main(epochs: int = 3, seed: int = 0) -> float:
    """The share of validation digits that are right."""
    data = digits(seed)
    frozen = hardstep.nn.build(lambda: nn.Sequential(nn.Linear(64, 256), nn.ReLU()), seed)
    train, valid = embed(frozen, data.train), embed(frozen, data.valid)
    head = hardstep.nn.build(lambda: TransformedLinear(256, 10, transform=Binary()), seed)
    batches = Batches(train, batch_size=128, seed=seed)
    settings = hardstep.presets.warm(steps=epochs * len(batches), rank=None)
    optimizer = hardstep.PolyStep(head, settings, seed=seed)
    for epoch in range(epochs):
        batches.set_epoch(epoch)
        for features, labels in batches:
            optimizer.step(features, labels, cross_entropy)
    return float((head(valid.inputs).argmax(1) == valid.labels).double().mean())


if __name__ == "__main__":
    print(f"{main():.1%} of the validation digits are right")
