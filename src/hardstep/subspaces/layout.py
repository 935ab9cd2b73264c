"""Which tensors are searched: their names, shapes, and which bias belongs to which weight.

A weight is anything with two or more dimensions, read as a matrix (shape[0], the rest): a
linear layer, a convolution (row = the filter of an output channel), an embedding (row = one
vector), a recurrent weight. Everything else is a vector and is searched at full size.
"""

import copy
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import reduce

import torch
from torch import Tensor, nn

from hardstep.errors import ConfigError


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """One searched tensor."""

    name: str
    shape: tuple[int, ...]
    dtype: torch.dtype
    device: torch.device

    @property
    def numel(self) -> int:
        """How many numbers it holds."""
        return int(torch.Size(self.shape).numel())

    @property
    def is_matrix(self) -> bool:
        """Whether it is a weight: one row per output unit."""
        return len(self.shape) >= 2

    @property
    def rows(self) -> int:
        """Output units of a weight."""
        return self.shape[0]

    @property
    def columns(self) -> int:
        """Inputs per output unit of a weight."""
        return self.numel // self.shape[0]

    def budget(self, rank: int) -> int:
        """Coordinates it gets: the layer budget for a weight, everything for a vector."""
        return layer_budget(self.rows, self.columns, rank) if self.is_matrix else self.numel


def layer_budget(rows: int, columns: int, rank: int) -> int:
    """The paper's dimension of a layer, (d_out + d_in)·rank, capped at the layer's size."""
    return min((rows + columns) * min(rank, rows, columns), rows * columns)


class Layout:
    """The searched tensors in order, with weight–bias pairs."""

    def __init__(self, tensors: Mapping[str, Tensor]) -> None:
        self.specs = {
            name: TensorSpec(name, tuple(tensor.shape), tensor.dtype, tensor.device)
            for name, tensor in tensors.items()
        }
        self.num_parameters = sum(spec.numel for spec in self.specs.values())
        self.bias_of = self._pair_biases()
        # Coordinates are kept in the widest dtype, float32 at least, with the first tensor.
        dtypes = (spec.dtype for spec in self)
        self.dtype = reduce(torch.promote_types, dtypes, torch.float32)
        self.device = next(iter(self)).device

    def restrict(self, names: Iterable[str]) -> "Layout":
        """The layout of some of the tensors, with coordinates of the same dtype."""
        part = copy.copy(self)
        part.specs = {name: self.specs[name] for name in names}
        part.num_parameters = sum(spec.numel for spec in part)
        part.bias_of = part._pair_biases()
        return part

    def __iter__(self) -> Iterator[TensorSpec]:
        return iter(self.specs.values())

    def find_bias(self, weight: TensorSpec) -> TensorSpec | None:
        """The bias that belongs to a weight, if any."""
        return self.specs[self.bias_of[weight.name]] if weight.name in self.bias_of else None

    def _pair_biases(self) -> dict[str, str]:
        """Weight name -> bias name, by torch's naming (`weight`/`bias`, `weight_ih_l0`, …)."""
        pairs = {}
        for spec in self:
            owner, _, leaf = spec.name.rpartition(".")
            candidate = f"{owner}.{leaf.replace('weight', 'bias')}".lstrip(".")
            bias = self.specs.get(candidate)
            if "weight" in leaf and spec.is_matrix and bias and bias.shape == (spec.rows,):
                pairs[spec.name] = candidate
        return pairs


def trainable(source: nn.Module | Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors to search: a module's trainable parameters (tied ones once), or the mapping's.

    Raises:
        ConfigError: There is nothing to search, or something that has no real numbers.
    """
    if not isinstance(source, nn.Module | Mapping):
        raise ConfigError(
            f"PolyStep needs a model or a dict of named tensors, got a {type(source).__name__}"
        )
    if not isinstance(source, nn.Module):
        return _check_searchable(source)
    named = {n: p for n, p in source.named_parameters() if p.requires_grad and p.numel()}
    if not named:
        raise ConfigError(
            f"{type(source).__name__} has no trainable parameters; "
            "set requires_grad=True on those to search"
        )
    return _check_searchable(named)


def _check_searchable(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The mapping as a dict; refuse what holds anything but real numbers."""
    odd = {
        name: f"{str(t.dtype)[6:]}{tuple(t.shape)}" if isinstance(t, Tensor) else type(t).__name__
        for name, t in tensors.items()
        if not (isinstance(t, Tensor) and t.is_floating_point() and t.numel())
    }
    if odd or not tensors:
        raise ConfigError(f"PolyStep needs non-empty floating-point tensors, got {odd}")
    return dict(tensors)
