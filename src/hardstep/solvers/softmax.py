"""Softmax of each row: transport without a column constraint.

    T_iv = (1/P) exp(−C_iv/ε) / Σ_w exp(−C_iw/ε)

This is the λ = 0 end of the KL-penalized family (`Penalized`), in closed form.
"""

from dataclasses import dataclass

from torch import Tensor

from hardstep.solvers.base import Plan, Potentials, Solver, row_sums, scale


def row_softmax(log_weights: Tensor) -> Tensor:
    """Rows proportional to exp(log_weights), (P, V), each summing to 1/P.

    Written out since `torch.softmax` is several times slower over so few columns.
    """
    weights = (log_weights - log_weights.amax(dim=1, keepdim=True)).exp_()
    return weights.div_(row_sums(weights).mul_(len(weights)))


@dataclass(frozen=True, slots=True)
class RowSoftmax(Solver):
    """Every particle decides alone; the default, and the fastest.

    No iterations and no potentials, so `warm` has nothing to offer.
    """

    def solve(self, costs: Tensor, temperature: float, warm: Potentials | None = None) -> Plan:
        """The plan in closed form.

        Raises:
            ConfigError: costs or temperature out of range.
        """
        del warm
        return Plan(row_softmax(scale("RowSoftmax", costs, temperature).excess.neg_()))
