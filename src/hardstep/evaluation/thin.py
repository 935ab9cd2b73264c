"""Weights that differ from a common one by a product of thin factors.

    x (W + A Bᵀ)ᵀ = x Wᵀ + (x B) Aᵀ

A, (rows, r), and B, (columns, r), are a candidate's own; W is everyone's. With r = 1 a linear layer
then costs a candidate two thin products, and one whose input is the same for all, as that of the
first layer is, computes x Wᵀ once for all of them: what EGGROLL is made for. Whatever else a model
does with such a weight (quantise it, transpose it, convolve with it) sees W + A Bᵀ, computed then.
"""

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from torch.utils._pytree import tree_map

from hardstep.subspaces import Factors

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


class ThinWeight(Tensor):
    """W + A Bᵀ, computed only where a model asks for more than linear layers and shapes.

    It has no memory of its own, so that nothing can take W for it by mistake: an operation that
    passes by `__torch_function__` fails, and the candidate is evaluated with whole tensors.
    """

    common: Tensor
    factors: Factors
    _whole: Tensor | None

    @staticmethod
    def __new__(cls, common: Tensor, factors: Factors) -> "ThinWeight":
        """A tensor of the shape of `common`, which it refers to."""
        made: ThinWeight = Tensor._make_wrapper_subclass(
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
        with torch._C.DisableTorchFunctionSubclass():
            if func in DESCRIPTIONS:
                return func(*args, **kwargs)
            if func is functional.linear:
                found = _linear(*args, **kwargs)
                if found is not None:
                    return found
            args, kwargs = tree_map(_whole_if_thin, (args, kwargs))
            return func(*args, **kwargs)

    @classmethod
    def __torch_dispatch__(cls, func: Any, *_: Any) -> Any:
        """Only what did not ask for the whole weight comes here."""
        raise TypeError(f"{func} cannot take a weight that is kept as thin factors")


def _whole_if_thin(value: Any) -> Any:
    return value.whole() if isinstance(value, ThinWeight) else value


def _linear(input: Any, weight: Any, bias: Any = None) -> Tensor | None:
    """`functional.linear`, whose names these are; nothing if the weight is not what is thin."""
    if not isinstance(weight, ThinWeight) or isinstance(input, ThinWeight):
        return None
    left, right = (factor.to(weight.dtype) for factor in weight.factors)
    result: Tensor = _ThinLinear.apply(input, weight.common, left, right)  # type: ignore[no-untyped-call]
    return result if bias is None else result + _whole_if_thin(bias)


class _ThinLinear(torch.autograd.Function):
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
        if in_dims[1:] == (None, None, None):  # a `vmap` of the model's own, over examples
            return _ThinLinear.apply(x.movedim(in_dims[0], 0), common, left, right), 0  # type: ignore[no-untyped-call]
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
