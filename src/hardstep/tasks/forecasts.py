"""Tasks that forecast a series: an LSTM reads a window, its last state tells what follows.

    etth1            an oil temperature, four days from four days; the paper's network
    etth1-relative   the same network on differences to the last value it sees
    etth1-int8       etth1 with weights and biases of eight bits
    etth1-gates      etth1 with gates that are open or closed
    waves            a small one on a series made here, for a first try

The score is the mean squared error of standardized values; lower is better. On ETTh1's test part,
which lies lower than anything before, persistence (the last value again) has 0.0687.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import mse_loss

from hardstep.data import DataSet, Split, etth1, waves
from hardstep.evaluation import call_model, isolate
from hardstep.geometry import Simplex
from hardstep.nn import HardLSTM, Quantize, Relaxed, Step, TransformedLinear, WeightTransform
from hardstep.optim import Settings, WeightMomentum
from hardstep.optim.presets import general
from hardstep.schedules import Cosine, Length
from hardstep.subspaces import PerTensor, RowWise
from hardstep.tasks.task import Task
from hardstep.training import Metric


def _absolute(output: Tensor, target: Tensor) -> Tensor:
    return (output - target).abs().mean()


MSE, MAE = Metric("mse", mse_loss), Metric("mae", _absolute)
SHOWN = 3  # forecasts in a picture


class Forecaster(nn.Module):
    """The last state of an LSTM, read out by a linear layer.

    Args:
        hidden: Units of the LSTM.
        horizon: Values to forecast.
        relative: Whether the network sees and tells differences to the last value of the window.
        lstm: From inputs (batch, time, 1) to states (batch, time, hidden); `nn.LSTM` if left out.
        head: From the last state to the forecast; `nn.Linear` if left out.
    """

    def __init__(
        self,
        hidden: int = 64,
        horizon: int = 96,
        relative: bool = False,
        lstm: nn.Module | None = None,
        head: nn.Module | None = None,
    ) -> None:
        super().__init__()
        self.relative = relative
        self.lstm = nn.LSTM(1, hidden, batch_first=True) if lstm is None else lstm
        self.head = nn.Linear(hidden, horizon) if head is None else head

    def forward(self, window: Tensor) -> Tensor:
        """The forecast (batch, horizon) after windows (batch, length)."""
        last = window[:, -1:]
        states = self.lstm((window - last if self.relative else window)[:, :, None])
        if isinstance(states, tuple):  # nn.LSTM returns its final state, too
            states = states[0]
        forecast: Tensor = self.head(states[:, -1])
        return forecast + last if self.relative else forecast


def quantized_forecaster(transform: WeightTransform) -> Forecaster:
    """The paper's network with every weight and bias through a transform."""
    head = TransformedLinear(64, 96, transform=transform)
    return Forecaster(lstm=HardLSTM(1, 64, transform=transform), head=head)


def gated_forecaster(gate: Callable[[], nn.Module]) -> Forecaster:
    """The paper's network with other gates."""
    return Forecaster(lstm=HardLSTM(1, 64, gate=gate()))


def persistence(window: Tensor, horizon: int) -> Tensor:
    """The last value again: what a forecast has to beat."""
    return window[:, -1:].expand(-1, horizon)


@torch.no_grad()
def draw_forecasts(axes: Any, model: nn.Module, split: Split) -> None:
    """Forecasts over the truth, for a few windows spread over the part."""
    from hardstep.tasks.plots import ACCENT, INK, QUIET

    length, horizon = split.inputs.shape[1], split.labels.shape[1]
    gap = length + horizon + (length + horizon) // 10
    for number in range(SHOWN):
        row = (2 * number + 1) * len(split) // (2 * SHOWN)
        window, truth = split.inputs[row : row + 1], split.labels[row]
        start = number * gap
        seen = range(start, start + length)
        ahead = range(start + length, start + length + horizon)
        first = number == 0
        axes.plot(seen, window[0].numpy(), color=QUIET, label="seen" if first else None)
        axes.plot(ahead, truth.numpy(), color=INK, label="truth" if first else None)
        with isolate(model):
            model.eval()
            told = call_model(model, window)[0].numpy()
        axes.plot(ahead, told, color=ACCENT, label="forecast" if first else None)
    axes.set(xlabel="time", ylabel="standardized value", xticks=[])
    axes.legend(edgecolor="none", framealpha=0.9)
    axes.set_title(f"{SHOWN} of {len(split):,} validation windows", loc="left", fontsize=10)


def in_turns(steps: int) -> Settings:
    """The head whole at every step, a few units of the LSTM in turns.

    A probe of the head costs next to nothing, one of the LSTM a large part of a forward pass. What
    few units in few directions tell of a gradient adds up over the steps.
    """
    return Settings(
        subspace=PerTensor({"head.*": RowWise(None), "*": RowWise(2, redraw=1, share=0.02)}),
        polytope=Simplex(4),
        temperature=3e-4,
        step_radius=Length(Cosine(0.04, 1.2e-3, steps)),
        probe_radius=Length(0.5),
        rules=(WeightMomentum(0.9),),
    )


def _forecast(
    name: str,
    title: str,
    model: Callable[[], nn.Module],
    twin: Callable[[], nn.Module] | None = None,
    data: Callable[[int], DataSet] = etth1,
    **options: Any,
) -> Task:
    return Task(
        name=name,
        title=title,
        data=data,
        model=model,
        twin=model if twin is None else twin,
        loss_fn=mse_loss,
        metric=MSE,
        also=(MAE,),
        panel=draw_forecasts,
        data_name=data.__name__,
        **{"settings": in_turns, "steps": 3_000, "batch_size": 64, **options},
    )


_INT8 = Quantize()
FORECASTS = {
    task.name: task
    for task in (
        _forecast("etth1", "LSTM 1–64–96, ETTh1, four days ahead", Forecaster),
        _forecast(
            "etth1-relative",
            "LSTM 1–64–96 on differences to the last value, ETTh1, four days ahead",
            partial(Forecaster, relative=True),
        ),
        _forecast(
            "etth1-int8",
            "INT8 LSTM 1–64–96, ETTh1, four days ahead",
            partial(quantized_forecaster, _INT8),
            partial(quantized_forecaster, Relaxed(_INT8)),
        ),
        _forecast(
            "etth1-gates",
            "LSTM 1–64–96 with gates of 0 and 1, ETTh1, four days ahead",
            partial(gated_forecaster, Step),
            partial(gated_forecaster, nn.Sigmoid),
        ),
        _forecast(
            "waves",
            "LSTM 1–8–24, a daily wave with drift and noise, a day ahead",
            partial(Forecaster, 8, 24, relative=True),
            data=waves,
            settings=partial(general, rank=2),
            steps=30,
            batch_size=64,
        ),
    )
}
