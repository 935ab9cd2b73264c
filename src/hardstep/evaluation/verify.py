"""A look at some losses of a fast path, beside those of plain forward passes.

The fast paths follow what a record shows. Should a model ever hide something from it, its losses
would be wrong and nothing would fail; so the first losses of every block are compared.
"""

import warnings
from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from hardstep.evaluation.candidates import Candidates, Span
from hardstep.evaluation.onebyone import OneByOne
from hardstep.evaluation.problem import Problem

COMPARED = 8  # candidates of a block, spread over it
TOLERANCE = 0.01  # of the largest change of a loss among them
ROUNDING = 128  # units in the last place of a loss; the gallery's tasks differ by two at most
LAST_DIGITS = 8  # units in the last place by which weights are moved to see what rounding does


def find_contradiction(
    candidates: Candidates, problem: Problem, span: Span, losses: Tensor, base: Tensor
) -> str | None:
    """How `losses` of a span differ from those of plain forward passes, if they do.

    Most of the compared must be off by some part of what candidates change. A wrong rule makes
    them so. A value on a threshold, which another order of summation carries to its other side,
    changes few of them, or all by little; or much, in networks that carry it far, and then weights
    that differ in their last digits do the same to plain forward passes.
    """
    places = spread(len(losses))
    alone = span.singles(places)
    plain = OneByOne().losses(candidates, problem, alone).double()
    found = losses[places].double()
    rounding = ROUNDING * _precision(losses) * plain.abs()
    off = _off(found, plain, TOLERANCE * _largest(plain - base.double()) + rounding)
    if 2 * int(off.sum()) > len(places):
        moved = OneByOne().losses(_nudge(candidates), problem, alone).double()
        off &= _off(found, plain, 2 * _largest(moved - plain))
    if 2 * int(off.sum()) <= len(places):
        return None
    first = int(off.nonzero()[0])
    return f"found {found[first]:.6g} where a plain forward pass gives {plain[first]:.6g}"


def report(names: Sequence[str], way: str, difference: str) -> None:
    """Tell the user, whose losses are right from here on, and slow."""
    warnings.warn(
        f"hardstep's {way} evaluation of {names[0]} {difference}; it is not used for this model. "
        "Please report the model, unless a value sits exactly on a threshold: it may be a defect",
        RuntimeWarning,
        stacklevel=2,
    )


def spread(num: int) -> list[int]:
    """At most COMPARED places of `num`, first and last among them."""
    return sorted({round(place) for place in torch.linspace(0, num - 1, COMPARED).tolist()})


def _precision(losses: Tensor) -> float:
    return torch.finfo(losses.dtype if losses.is_floating_point() else torch.float64).eps


def _largest(differences: Tensor) -> float:
    """The largest that is finite."""
    finite = differences[differences.isfinite()].abs()
    return float(finite.max()) if len(finite) else 0.0


def _off(found: Tensor, plain: Tensor, allowed: Tensor | float) -> Tensor:
    same = (found == plain) | (found.isnan() & plain.isnan())
    return ~same & ~((found - plain).abs() <= allowed)


def _nudge(candidates: Candidates) -> Candidates:
    """The same candidates, with other last digits in every searched tensor."""
    generator = torch.Generator().manual_seed(0)

    def nudge(tensor: Tensor) -> Tensor:
        if not tensor.is_floating_point():
            return tensor
        signs = torch.randint(2, tensor.shape, generator=generator).to(tensor.device) * 2 - 1
        return tensor.detach() * (1 + LAST_DIGITS * torch.finfo(tensor.dtype).eps * signs)

    return replace(candidates, base={name: nudge(t) for name, t in candidates.base.items()})
