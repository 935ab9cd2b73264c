"""The variables of a black-box function: where they start, their scale and their bounds."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from hardstep._checks import is_number
from hardstep.errors import ConfigError

Vector = NDArray[np.float64]
Bounds = tuple[float, float] | Sequence[tuple[float, float]]  # for all variables, or per variable


@dataclass(frozen=True, eq=False)
class Variables:
    """All of shape (dim,)."""

    start: Vector
    scale: Vector
    low: Vector
    high: Vector

    def clip(self, x: Vector) -> Vector:
        """The nearest point within the bounds."""
        return np.clip(x, self.low, self.high)

    def as_tensor(self) -> torch.Tensor:
        """Everything in one tensor, to be saved and compared."""
        return torch.from_numpy(np.stack([self.start, self.scale, self.low, self.high]))


def read_variables(
    name: str, dim: int | None, x0: ArrayLike | None, scale: ArrayLike, bounds: Bounds | None
) -> Variables:
    """What the user's arguments amount to; `name` is that of the function they were given to.

    Raises:
        ConfigError: They contradict each other, or make no sense.
    """
    try:
        pairs = None if bounds is None else _numbers("bounds", bounds)
        size = _dimension(dim, x0, pairs)
        low, high = _box(pairs, size)
        return Variables(_start(x0, low, high), _scales(scale, low, high), low, high)
    except ConfigError as error:
        raise ConfigError(f"{name}: {error}") from error.__cause__


def _numbers(name: str, value: ArrayLike) -> Vector:
    try:
        return np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ConfigError(f"{name} must be numbers, got {repr(value)[:80]}") from error


def _dimension(dim: int | None, x0: ArrayLike | None, pairs: Vector | None) -> int:
    if dim is not None and (not is_number(dim) or dim != int(dim)):
        raise ConfigError(f"dim must be a whole number, got {dim!r}")
    known = {
        "dim": dim,
        "x0": None if x0 is None else _numbers("x0", x0).size,
        "bounds": None if pairs is None or pairs.shape == (2,) else len(np.atleast_1d(pairs)),
    }
    sizes = {name: size for name, size in known.items() if size is not None}
    if not sizes and pairs is not None:
        raise ConfigError(f"bounds {pairs.tolist()} of all variables need dim or x0")
    if len(set(sizes.values())) != 1 or min(sizes.values()) < 1:
        raise ConfigError(f"need one number of variables, got {sizes or 'nothing'}")
    return int(next(iter(sizes.values())))


def _box(pairs: Vector | None, dim: int) -> tuple[Vector, Vector]:
    if pairs is None:
        return np.full(dim, -np.inf), np.full(dim, np.inf)
    if pairs.shape not in ((2,), (dim, 2)):
        raise ConfigError(
            f"bounds must be a (low, high) pair, or one per variable, got shape {pairs.shape}"
        )
    every = np.broadcast_to(pairs, (dim, 2)).copy()
    if not (every[:, 0] < every[:, 1]).all():
        raise ConfigError(f"every bound must have low < high, got {pairs.tolist()}")
    return every[:, 0], every[:, 1]


def _scales(scale: ArrayLike, low: Vector, high: Vector) -> Vector:
    sizes = _numbers("scale", scale)
    if sizes.size not in (1, len(low)) or sizes.ndim > 1:
        raise ConfigError(
            f"scale must be one number or one per variable ({len(low)}), got {sizes.size} of them"
        )
    given = np.broadcast_to(sizes, low.shape)
    if not ((given > 0) & np.isfinite(given)).all():
        raise ConfigError(f"scale must be > 0 and finite, got {given.tolist()}")
    return np.where(np.isfinite(high - low), (high - low) / 4, given)


def _start(x0: ArrayLike | None, low: Vector, high: Vector) -> Vector:
    if x0 is None:
        with np.errstate(invalid="ignore"):
            middle = (low + high) / 2
        return np.where(np.isfinite(middle), middle, np.clip(0.0, low, high))
    start = _numbers("x0", x0).reshape(-1).copy()
    if not ((start >= low) & (start <= high) & np.isfinite(start)).all():
        raise ConfigError(f"x0 must be finite and within the bounds, got {start.tolist()}")
    return start
