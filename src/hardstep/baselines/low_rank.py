"""EGGROLL's members: low-rank changes A Bᵀ of matrices, and linear layers that never add them up.

    x (W + A Bᵀ)ᵀ = x Wᵀ + (x B) Aᵀ

A, (rows, r), and B, (columns, r), are a candidate's own; W is everyone's. With r = 1 a linear layer
costs a candidate two thin products, and one whose input is the same for all, as that of the first
layer is, computes x Wᵀ once for all of them. Whatever else a model does with such a weight
(quantize it, transpose it, convolve with it) sees W + A Bᵀ, computed then.

The entries of A and B are the coordinates of the subspace `Factored`. They are 0 at the current
weights, wherever those are, so nothing moves along with them and there is no base to choose.
`LowRank` differs: its factors are weights that are searched.
"""

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from hardstep._checks import check_count
from hardstep._torch import tree_map, unseen_by_subclasses
from hardstep.baselines.gradient_free import Members
from hardstep.evaluation import Span
from hardstep.subspaces import (
    BlockMap,
    BoundSubspace,
    IdentityMap,
    JointSubspace,
    Layout,
    TensorSpec,
)
from hardstep.subspaces.lowrank import FactorMap

PRECISE = (torch.float32, torch.float64)
LARGE = 1 << 14  # numbers of a weight; with fewer, it takes less time to compute than to avoid


class Factors(NamedTuple):
    """Changes of a weight that are products A Bᵀ."""

    left: Tensor  # A, (n, rows, r)
    right: Tensor  # B, (n, columns, r)


# -- the subspace ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Factored:
    """Factor pairs for what has two dimensions or more, the rest whole."""

    rank: int

    def __post_init__(self) -> None:
        check_count("Factored: rank", self.rank)

    def bind(self, layout: Layout, particle_dim: int, seed: int) -> "BoundFactored":
        """Nothing to draw."""
        del particle_dim, seed
        return BoundFactored(layout, tuple(self._map(layout, spec) for spec in layout))

    def _map(self, layout: Layout, spec: TensorSpec) -> BlockMap:
        if not spec.is_matrix:
            return IdentityMap(spec)
        rank = min(self.rank, spec.rows, spec.columns)
        zeros = torch.zeros(spec.rows + spec.columns, rank, dtype=layout.dtype, device=spec.device)
        return ProductMap(spec, zeros[: spec.rows], zeros[spec.rows :])


class ProductMap(FactorMap):
    """Factors that stay at 0, so that a change is the product of the coordinates alone."""

    def expand_many(self, coordinates: Tensor) -> dict[str, Tensor]:
        """A Bᵀ of every vector (N, n)."""
        (spec,) = self.specs
        left, right = self._factors(coordinates)
        change = left @ right.transpose(1, 2)
        return {spec.name: change.reshape(-1, *spec.shape).to(spec.dtype)}

    @property
    def stays_factored(self) -> bool:
        """Whether a linear layer gains by keeping the factors apart.

        In half precision it must not: there a weight is rounded after it has been changed.
        """
        (spec,) = self.specs
        return len(spec.shape) == 2 and spec.numel >= LARGE and spec.dtype in PRECISE

    def factors(self, coordinates: Tensor) -> Factors:
        """A and B of every vector (N, n)."""
        return Factors(*self._factors(coordinates))


class BoundFactored(BoundSubspace):
    """Changes A Bᵀ, and what a population of them adds up to."""

    def expand_factored(self, coordinates: Tensor) -> dict[str, Tensor | Factors]:
        """`expand_many` of vectors (N, n), but with large matrices as their factors."""
        changes: dict[str, Tensor | Factors] = {}
        for part, piece in zip(self.maps, self.split(coordinates), strict=True):
            if isinstance(part, ProductMap) and part.stays_factored:
                changes[part.specs[0].name] = part.factors(piece)
            else:
                changes |= part.expand_many(piece)
        return changes

    def scales(self, deviation: float) -> Tensor:
        """(dim,) factors that make standard normal coordinates changes of this deviation.

        A change is then `deviation` · A Bᵀ / √r, or `deviation` times a normal vector.
        """
        pieces = []
        for part in self.maps:
            if isinstance(part, FactorMap):
                rank = part.left.shape[1]
                pieces.append(torch.full((part.left.numel(),), deviation / math.sqrt(rank)))
                pieces.append(torch.ones(part.right.numel()))
            else:
                pieces.append(torch.full((part.block.size,), deviation))
        return torch.cat(pieces)

    def mirror(self, coordinates: Tensor) -> Tensor:
        """Coordinates (N, dim) of the opposite changes: −A and B, −vectors."""
        pieces = []
        for part, piece in zip(self.maps, self.split(coordinates), strict=True):
            kept = part.right.numel() if isinstance(part, FactorMap) else 0
            turned, same = torch.split(piece, [piece.shape[1] - kept, kept], dim=1)
            pieces += [-turned, same]
        return torch.cat(pieces, dim=1)

    def combine(self, weights: Tensor, coordinates: Tensor) -> dict[str, Tensor]:
        """Σ w_i · change_i for weights (N,) and coordinates (N, dim), without any change_i."""
        result = {}
        for part, piece in zip(self.maps, self.split(coordinates), strict=True):
            (spec,) = part.specs
            if isinstance(part, ProductMap):
                left, right = part.factors(piece)
                # Member and rank together are the axis that the product sums over.
                change = torch.tensordot(
                    weights[:, None, None] * left, right, dims=([0, 2], [0, 2])
                )
            else:
                change = weights @ piece
            result[spec.name] = change.reshape(spec.shape).to(spec.dtype)
        return result


# -- evaluation -----------------------------------------------------------------------------


class FactoredMembers(Members):
    """Members whose large matrices a batched forward pass takes as factors."""

    def pack(self, span: Span) -> dict[str, Any]:
        """Whole tensors, or factors."""
        assert isinstance(self.subspace, JointSubspace)
        assert isinstance(self.subspace.inner, BoundFactored)
        changes = self.subspace.inner.expand_factored(self.coordinates(span)[1])
        return {
            name: change if isinstance(change, Factors) else self.base[name].detach() + change
            for name, change in changes.items()
        }

    def unpack(self, packed: dict[str, Any]) -> dict[str, Tensor]:
        """Factors with the weight that they change."""
        return {
            name: FactoredWeight(self.base[name].detach(), change)
            if isinstance(change, Factors)
            else change
            for name, change in packed.items()
        }


# What is known of a weight without computing it.
DESCRIPTIONS = {
    Tensor.shape.__get__,  # type: ignore[attr-defined]
    Tensor.ndim.__get__,  # type: ignore[attr-defined]
    Tensor.dtype.__get__,  # type: ignore[attr-defined]
    Tensor.device.__get__,
    Tensor.size,
    Tensor.dim,
    Tensor.numel,
}


class FactoredWeight(Tensor):
    """W + A Bᵀ, computed only where a model asks for more than linear layers and shapes.

    It has no memory of its own, so that nothing can take W for it by mistake: an operation that
    passes by `__torch_function__` fails, and the candidate is evaluated with whole tensors.
    """

    common: Tensor
    factors: Factors
    _whole: Tensor | None

    @staticmethod
    def __new__(cls, common: Tensor, factors: Factors) -> "FactoredWeight":
        """A tensor of the shape of `common`, which it refers to."""
        made: FactoredWeight = Tensor._make_wrapper_subclass(
            cls, common.shape, dtype=common.dtype, device=common.device
        )
        made.common, made.factors, made._whole = common, factors, None
        return made

    def whole(self) -> Tensor:
        """The weight as an ordinary tensor."""
        if self._whole is None:
            change = self.factors.left @ self.factors.right.mT
            shape = tuple(self.common.shape)
            self._whole = self.common + change.reshape(shape).to(self.common.dtype)
        return self._whole

    @classmethod
    def __torch_function__(
        cls, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        """Linear layers by their factors; everything else with the whole weight."""
        del types
        kwargs = kwargs or {}
        with unseen_by_subclasses():
            if func in DESCRIPTIONS:
                return func(*args, **kwargs)
            if func is functional.linear:
                found = _linear(*args, **kwargs)
                if found is not None:
                    return found
            args, kwargs = tree_map(_make_whole, (args, kwargs))
            return func(*args, **kwargs)

    @classmethod
    def __torch_dispatch__(cls, func: Any, *_: Any) -> Any:
        """Only what did not ask for the whole weight comes here."""
        raise TypeError(f"{func} cannot take a weight that is kept as low-rank factors")


def _make_whole(value: Any) -> Any:
    return value.whole() if isinstance(value, FactoredWeight) else value


def _linear(input: Any, weight: Any, bias: Any = None) -> Tensor | None:
    """`functional.linear`, whose names these are; nothing if the weight is not what is factored."""
    if not isinstance(weight, FactoredWeight) or isinstance(input, FactoredWeight):
        return None
    left, right = (factor.to(weight.dtype) for factor in weight.factors)
    result: Tensor = _FactoredLinear.apply(input, weight.common, left, right)  # type: ignore[no-untyped-call]
    return result if bias is None else result + _make_whole(bias)


class _FactoredLinear(torch.autograd.Function):
    """x Wᵀ + (x B) Aᵀ, with a rule for `vmap`, whose own would read x once per candidate."""

    @staticmethod
    def forward(x: Tensor, common: Tensor, left: Tensor, right: Tensor) -> Tensor:
        """For one candidate."""
        return x @ common.mT + (x @ right) @ left.mT

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        """Nothing is kept: there are no gradients here."""

    @staticmethod
    def vmap(
        info: Any, in_dims: Any, x: Tensor, common: Tensor, left: Tensor, right: Tensor
    ) -> tuple[Tensor, int]:
        """For a tile of n candidates: (n, …, rows)."""
        if in_dims[1:] == (None, None, None):  # a `vmap` in the model itself, over examples
            return _FactoredLinear.apply(x.movedim(in_dims[0], 0), common, left, right), 0  # type: ignore[no-untyped-call]
        assert in_dims[1:] == (None, 0, 0), "W is common, the factors are not"
        num, (rows, columns) = info.batch_size, common.shape
        if in_dims[0] is None:
            shape, flat = x.shape[:-1], x.reshape(-1, columns)
            thin = flat @ right.permute(1, 0, 2).reshape(columns, -1)
            thin = thin.reshape(len(flat), num, -1).transpose(0, 1)
            result = torch.baddbmm((flat @ common.mT).expand(num, -1, -1), thin, left.mT)
        else:
            x = x.movedim(in_dims[0], 0)
            shape, flat = x.shape[1:-1], x.reshape(num, -1, columns)
            if rows * columns < flat.shape[1] * (rows + columns):  # whole weights move less memory
                result = flat @ torch.baddbmm(common.expand(num, -1, -1), left, right.mT).mT
            else:
                result = torch.baddbmm(flat @ common.mT, flat @ right, left.mT)
        return result.reshape(num, *shape, rows), 0
