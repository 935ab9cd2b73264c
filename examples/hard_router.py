"""A router that chooses one expert by argmax: PolyStep trains the router, Adam everything else.

    python examples/hard_router.py

No gradient passes through argmax, so Adam alone leaves the router as it was drawn. Here both take
turns on every batch, and neither touches what the other one trains.
"""

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

import hardstep


class Routed(nn.Module):
    """Experts that see a picture through two numbers each; the router picks one per picture."""

    def __init__(self, experts: int = 6) -> None:
        super().__init__()
        self.router = nn.Linear(64, experts)
        self.narrow = nn.Parameter(0.1 * torch.randn(experts, 64, 2))
        self.wide = nn.Parameter(0.1 * torch.randn(experts, 2, 10))

    def forward(self, pixels: Tensor) -> Tensor:
        """Scores of ten classes."""
        scores = torch.einsum("ni,eih,ehc->nec", pixels, self.narrow, self.wide)
        choice = self.router(pixels).argmax(1)
        return scores.gather(1, choice[:, None, None].expand(-1, 1, 10))[:, 0]


def main(epochs: int = 10, search: bool = True, seed: int = 0) -> float:
    """Train on the bundled digits; returns the share of validation digits that are right."""
    data = hardstep.data.digits(seed=seed)
    train = hardstep.data.Batches(data.train, batch_size=128, seed=seed)
    model = hardstep.nn.build(Routed, seed=seed)
    settings = hardstep.presets.general(epochs * len(train))
    router = hardstep.PolyStep(model, settings, only="router.*", seed=seed)
    rest = [p for name, p in model.named_parameters() if name not in router.tensors]
    adam = torch.optim.Adam(rest, lr=0.01)
    for _ in range(epochs):
        for x, y in train:
            adam.zero_grad()
            cross_entropy(model(x), y).backward()
            adam.step()
            if search:
                router.step(x, y, cross_entropy)
    with torch.no_grad():
        right = model(data.valid.inputs).argmax(1) == data.valid.labels
    return float(right.double().mean())


if __name__ == "__main__":
    print(f"router as it was drawn: {main(search=False):.1%} of the validation digits are right")
    print(f"router by PolyStep:     {main():.1%}")
