"""One independent transport problem per block of particles (one block per tensor).

    T = [ (P_1/P) T_1 ; (P_2/P) T_2 ; … ],   T_b the inner plan of the P_b rows of block b

Every row still carries 1/P, and each block meets the column masses within its own share.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from hardstep.errors import ConfigError
from hardstep.solvers.base import Plan, Potentials, Solver


@dataclass(frozen=True, slots=True)
class Blockwise(Solver):
    """Keeps the column masses of one layer from depending on the costs of another.

    Changes nothing for solvers that treat rows apart (`RowSoftmax`, `Greedy`, `TopK`).
    `bind` fills in `block_sizes`; without them there is nothing to solve.

    Potentials hold all rows, (P,), and a column potential per block, (num_blocks, V). The plan
    reports the iterations of the slowest block, and has converged if every block has.
    """

    inner: Solver
    block_sizes: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if not isinstance(self.inner, Solver) or isinstance(self.inner, Blockwise):
            raise ConfigError(
                f"Blockwise: inner must be a solver, and not blockwise itself, got {self.inner!r}"
            )
        if any(size < 1 for size in self.block_sizes):
            raise ConfigError(f"Blockwise: block sizes must be at least 1, got {self.block_sizes}")

    def bind(self, block_sizes: Sequence[int]) -> "Blockwise":
        """This solver for particles in blocks of these sizes.

        Raises:
            ConfigError: no block, or an empty one.
        """
        if not block_sizes:
            raise ConfigError(f"Blockwise: bind needs at least one block size, got {block_sizes}")
        return replace(self, block_sizes=tuple(block_sizes))

    def solve(self, costs: Tensor, temperature: float, warm: Potentials | None = None) -> Plan:
        """The plans of all blocks, one below the other.

        Raises:
            ConfigError: not bound, costs do not have as many rows as the blocks, `warm` comes
                from other blocks, or the inner solver refuses its block.
        """
        self._check(costs, warm)
        plans = []
        for block, block_costs in enumerate(torch.split(costs, list(self.block_sizes))):
            start = warm and Potentials(warm.row, warm.column[block])
            plan = self.inner.solve(block_costs, temperature, start)
            plans.append(_share(plan, len(block_costs) / len(costs), temperature))
        return _stack(plans)

    def _check(self, costs: Tensor, warm: Potentials | None) -> None:
        if not self.block_sizes:
            raise ConfigError(
                "Blockwise: the blocks are not known yet; call bind(block_sizes) and solve with "
                "the solver it returns"
            )
        rows, expected = tuple(costs.shape[:1]), sum(self.block_sizes)
        if rows != (expected,):
            raise ConfigError(
                f"Blockwise: costs must have {expected} rows, as the blocks {self.block_sizes} "
                f"have together, got shape {tuple(costs.shape)}"
            )
        if warm is not None and len(warm.column) != len(self.block_sizes):
            raise ConfigError(
                f"Blockwise: warm must hold {len(self.block_sizes)} column potentials, one per "
                f"block, got {len(warm.column)}; pass warm=None to start afresh"
            )


def _share(plan: Plan, fraction: float, temperature: float) -> Plan:
    """The plan carrying a fraction of the mass; T = exp((f + g − C)/ε) keeps holding."""
    potentials = plan.potentials
    if potentials is not None:
        row = potentials.row + temperature * math.log(fraction)
        potentials = Potentials(row, potentials.column)
    return plan._replace(weights=plan.weights * fraction, potentials=potentials)


def _stack(plans: Sequence[Plan]) -> Plan:
    found = [plan.potentials for plan in plans if plan.potentials is not None]
    potentials = None
    if found:
        rows, columns = zip(*found, strict=True)
        potentials = Potentials(torch.cat(rows), torch.stack(columns))
    return Plan(
        torch.cat([plan.weights for plan in plans]),
        potentials,
        max(plan.iterations for plan in plans),
        all(plan.converged for plan in plans),
    )
