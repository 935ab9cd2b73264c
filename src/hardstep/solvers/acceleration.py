"""How the dual ascent moves from a potential to its next one.

A step is told the exact block maximiser (`target`) and answers with the point to go to. Both
ways here are safe: neither can make the ascent fail where plain updates would succeed.
"""

from collections import deque
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor


class Step(Protocol):
    """Moves the two potentials, given where the exact updates would put them."""

    def move_row(self, row: Tensor, target: Tensor) -> Tensor:
        """The next row potential, (P,)."""

    def move_column(self, column: Tensor, target: Tensor, violation: float) -> Tensor:
        """The next column potential, (V,); `violation` belongs to `column`."""


@dataclass(frozen=True, slots=True)
class Relaxed:
    """(1 − ϖ) current + ϖ target, entry by entry; ϖ = 1 is the plain update.

    Raising a potential past its target by too much lowers the dual, and the iteration could
    diverge. With move δ = target − current the dual changes, per unit of mass, by

        ϖδ + exp(−δ) − exp((ϖ − 1)δ) >= 0   for every δ <= 2 − ϖ,

    so an entry with a larger move takes the plain update instead and the dual never falls.
    """

    relaxation: float = 1.0

    def move_row(self, row: Tensor, target: Tensor) -> Tensor:
        """Both halves relax alike."""
        move = target - row
        return target + (self.relaxation - 1) * move * (move <= 2 - self.relaxation)

    def move_column(self, column: Tensor, target: Tensor, violation: float) -> Tensor:
        """Both halves relax alike."""
        del violation
        return self.move_row(column, target)


class Anderson:
    """Anderson mixing of the column potential over the last `depth` changes.

    With residuals r = target − w and their differences ΔR, ΔW over the memory,

        w_next = target − (ΔW + ΔR) γ,   γ = argmin ‖r − ΔR γ‖² + regularisation.

    A mixed point that does not lower the violation is dropped for the plain update it
    replaced, and the memory is cleared. Holds the state of one solve; make a new one for each.
    """

    def __init__(self, depth: int) -> None:
        self._points: deque[Tensor] = deque(maxlen=depth + 1)
        self._targets: deque[Tensor] = deque(maxlen=depth + 1)
        self._violation = 0.0  # at the newest point in memory
        self._mixed = False  # whether the point to come was mixed

    def move_row(self, row: Tensor, target: Tensor) -> Tensor:
        """Rows take the exact update."""
        del row
        return target

    def move_column(self, column: Tensor, target: Tensor, violation: float) -> Tensor:
        """The mixed point, or the plain update kept from before if `column` is no progress."""
        if self._mixed and not violation < self._violation:  # also where it is NaN
            plain = self._targets[-1]
            self._points.clear()
            self._targets.clear()
            self._mixed = False
            return plain
        self._points.append(column)
        self._targets.append(target)
        self._violation = violation
        self._mixed = len(self._points) > 1
        return self._mix() if self._mixed else target

    def _mix(self) -> Tensor:
        points, targets = torch.stack(tuple(self._points)), torch.stack(tuple(self._targets))
        residuals = targets - points
        changes = residuals.diff(dim=0)  # (memory, V)
        limits = torch.finfo(changes.dtype)
        size = changes.abs().max().clamp(min=limits.tiny)  # γ does not depend on units
        basis = changes / size
        gram = basis @ basis.T
        gram.diagonal().add_(limits.eps * gram.trace() + limits.tiny)
        gamma = torch.linalg.solve_ex(gram, basis @ (residuals[-1] / size)).result
        mixed: Tensor = targets[-1] - gamma @ targets.diff(dim=0)
        return mixed
