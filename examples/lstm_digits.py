"""An unmodified LSTM that reads digits line by line, trained from forward passes alone.

    python examples/lstm_digits.py

The eight lines of a picture are eight time steps. There is nothing to set: the layer is torch's,
and the optimizer finds its own lengths.
"""

from torch import Tensor, nn
from torch.nn.functional import cross_entropy

import hardstep


class Reader(nn.Module):
    """The last hidden state of an LSTM, read out."""

    def __init__(self, hidden: int = 16) -> None:
        super().__init__()
        self.lstm = nn.LSTM(8, hidden, batch_first=True)
        self.out = nn.Linear(hidden, 10)

    def forward(self, pixels: Tensor) -> Tensor:
        """Scores of ten classes, from pictures (batch, 64)."""
        states, _ = self.lstm(pixels.reshape(-1, 8, 8))
        return self.out(states[:, -1])


def main(epochs: int = 20, seed: int = 0) -> float:
    """Train on the bundled digits; returns the share of validation digits that are right."""
    data = hardstep.data.digits(seed=seed)
    train = hardstep.data.Batches(data.train, batch_size=128, seed=seed)
    model = hardstep.nn.build(Reader, seed=seed)
    optimizer = hardstep.PolyStep(model, seed=seed)
    for _ in range(epochs):
        for x, y in train:
            optimizer.step(x, y, cross_entropy)
    right = model(data.valid.inputs).argmax(1) == data.valid.labels
    return float(right.double().mean())


if __name__ == "__main__":
    print(f"{main():.1%} of the validation digits are right")
