"""Forecast with an LSTM whose gates are open or closed, which no gradient can train.

    python examples/forecast.py

The series is made here: days, a slow drift and noise. The network sees a day and tells the next
one. It is compared with persistence, the last value again.
"""

import torch
from torch.nn.functional import mse_loss

import hardstep
from hardstep.data import Batches, waves
from hardstep.nn import HardLSTM, Step
from hardstep.tasks.forecasts import Forecaster, persistence


def make() -> Forecaster:
    """Eight units on differences to the last value of the window."""
    return Forecaster(8, horizon=24, relative=True, lstm=HardLSTM(1, 8, gate=Step()))


@torch.no_grad()
def main(epochs: int = 3, seed: int = 0) -> tuple[float, float]:
    """Mean squared errors on validation: the network's, and persistence's."""
    data = waves(seed)
    model = hardstep.nn.build(make, seed=seed)
    batches = Batches(data.train, batch_size=64, seed=seed)
    settings = hardstep.presets.general(steps=epochs * len(batches), rank=2)
    optimizer = hardstep.PolyStep(model, settings, seed=seed)
    for epoch in range(epochs):
        batches.set_epoch(epoch)
        for window, following in batches:
            optimizer.step(window, following, mse_loss)
    x, y = data.valid.inputs, data.valid.labels
    return float(mse_loss(model(x), y)), float(mse_loss(persistence(x, 24), y))


if __name__ == "__main__":
    found, last = main()
    print(f"mean squared error {found:.3f}, of persistence {last:.3f}")
