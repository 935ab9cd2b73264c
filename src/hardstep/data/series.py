"""Series to forecast: windows inside each part of a series, ETTh1, and a series made here.

    values ──► train | validation | test ──► windows of `length` values and the `horizon` after them

Values are standardized with the mean and deviation of the training part. No window reaches from one
part into another, so nothing of a later part is seen in an earlier one.

ETTh1 (Zhou et al. 2021) is the oil temperature of a transformer, a value per hour: 8,640 for
training, then 2,880 each for validation and test. Its license allows no changed copies, so tests
and demonstrations use `waves`, which is drawn here.
"""

import math
import os
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from hardstep._checks import check_count
from hardstep.data.archives import Archive, locate
from hardstep.data.csv_files import read_column
from hardstep.data.dataset import DataSet, Split
from hardstep.errors import DataError
from hardstep.seeds import generator

_ETTH1 = Archive(
    name="etth1",
    mirror=(
        "https://raw.githubusercontent.com/zhouhaoyi/ETDataset/"
        "1d16c8f4f943005d613b5bc962e9eeb06058cf07/ETT-small"
    ),
    checksums={"ETTh1.csv": "f18de3ad269cef59bb07b5438d79bb3042d3be49bdeecf01c1cd6d29695ee066"},
)
_HOURS = (8_640, 2_880, 2_880)  # 12, 4 and 4 months of 30 days
_WINDOW = 96
WAVES = 1_200  # values of the series made here
_DAY = 24


def forecasting(
    values: Tensor | Sequence[float],
    parts: Sequence[int],
    length: int,
    horizon: int,
    name: str = "series",
) -> DataSet:
    """Windows of a series with the values that follow each.

    Args:
        values: In order of time, at equal intervals.
        parts: How many of them are for training, validation and test; what is left is not used.
        length: Values that a forecast sees.
        horizon: Values it is to tell.
        name: What the series is called.

    Returns:
        Inputs (N, length) and labels (N, horizon), standardized.

    Raises:
        DataError: There are too few values, they do not vary, or one is not finite.
    """
    check_count(f"{name}: length", length)
    check_count(f"{name}: horizon", horizon)
    series = torch.as_tensor(values, dtype=torch.float64)
    _check_values(name, series, parts, length + horizon)
    train, valid, test = torch.split(series[: sum(parts)], list(parts))
    mean, deviation = train.mean(), train.std(correction=0)
    if not deviation > 0:
        raise DataError(f"{name}: all {parts[0]:,} values for training are {float(train[0]):g}")
    scaled = [(part - mean) / deviation for part in (train, valid, test)]
    splits = [_cut(part, length, horizon) for part in scaled]
    return DataSet(name, splits[0], splits[1], splits[2])


def _check_values(name: str, series: Tensor, parts: Sequence[int], window: int) -> None:
    if series.dim() != 1:
        raise DataError(f"{name}: a series has one dimension, got shape {tuple(series.shape)}")
    if len(series) < sum(parts):
        raise DataError(
            f"{name}: {len(series):,} values are fewer than the {sum(parts):,} of the three parts "
            f"{' + '.join(f'{part:,}' for part in parts)}; give smaller parts"
        )
    for part, size in zip(("training", "validation", "test"), parts, strict=True):
        if size < window:
            raise DataError(
                f"{name}: the {size:,} values for {part} are too few for a window of {window:,} "
                "(length + horizon); give larger parts or shorter windows"
            )
    odd = (~series.isfinite()).nonzero()
    if len(odd):
        raise DataError(
            f"{name}: {len(odd):,} of {len(series):,} values are not finite, the first at "
            f"[{int(odd[0])}]: {float(series[odd[0]])}; fill gaps before"
        )


def _cut(values: Tensor, length: int, horizon: int) -> Split:
    """Every window of the values, with what follows."""
    windows = values.to(torch.get_default_dtype()).unfold(0, length + horizon, 1)
    return Split(windows[:, :length].contiguous(), windows[:, length:].contiguous())


def etth1(seed: int = 0) -> DataSet:
    """The oil temperature, four days to forecast from four days; 8,449 / 2,689 / 2,689 windows.

    The seed changes nothing: the parts follow each other in time.
    """
    del seed
    values = read_column(_find_etth1(), "OT", time="date")
    return forecasting(values, _HOURS, _WINDOW, _WINDOW, "etth1")


def _find_etth1() -> Path:
    """The table as its authors have it, or gzipped."""
    provided = os.environ.get("HARDSTEP_DATA")
    packed = Path(provided, "etth1", "ETTh1.csv.gz") if provided else None
    return packed if packed and packed.is_file() else locate(_ETTH1) / "ETTh1.csv"


def waves(seed: int = 0) -> DataSet:
    """A series made here: days, a slow drift and noise; a day to forecast from a day.

    800 / 200 / 200 values. The seed changes nothing.
    """
    del seed
    return forecasting(draw_waves(), (800, 200, 200), _DAY, _DAY, "waves")


def draw_waves(num: int = WAVES, seed: int = 0) -> Tensor:
    """Values like those of a temperature: a daily wave, its overtone, a random walk, noise."""
    check_count("draw_waves: num", num)
    draws = torch.randn(2, num, generator=generator(seed, "waves"), dtype=torch.float64)
    angle = 2 * math.pi * torch.arange(num, dtype=torch.float64) / _DAY
    daily = torch.sin(angle) + 0.3 * torch.sin(2 * angle + 1)
    return 10 + 3 * daily + 0.15 * draws[0].cumsum(0) + 0.3 * draws[1]
