"""What a kernel does per candidate, counted from its expressions: the most it can be.

Rows in which nothing differs are skipped when the kernel runs, so it usually does less.
"""

from hardstep.evaluation.fused.expressions import Expr
from hardstep.evaluation.fused.leaves import LEAVES
from hardstep.evaluation.fused.schedule import REDUCTIONS, reachable
from hardstep.evaluation.fused.translate import Program
from hardstep.evaluation.fused.vectors import BYTES

_READS = {"lane", "at_unit", "matrix", "column"}  # one number per row


def operations(program: Program) -> int:
    """Additions, multiplications, comparisons and so on, if every row differs."""
    total = 0
    for expr in _needed(program):
        if expr.op == "product":
            change = expr.args[0]
            total += 2 * (change.domain or 1) * (expr.domain or 1)
        elif expr.op in ("linear", "spread"):
            total += 2 * expr.data[-1] * (expr.domain or 1)
        elif expr.op not in LEAVES:
            domain = expr.args[0].domain if expr.op in REDUCTIONS else expr.domain
            total += domain or 1
    return total * program.num_rows


def nbytes(program: Program) -> int:
    """Bytes read from tables of base values and of candidates, if every row differs."""
    total = 0
    for expr in _needed(program):
        rows = 1 + expr.data[-1] if expr.op in ("linear", "spread") else expr.op in _READS
        total += rows * BYTES[expr.kind] * (expr.domain or 1)
    return total * program.num_rows


def _needed(program: Program) -> list[Expr]:
    roots = [closing.difference for closing in program.closings]
    return reachable([*roots, *program.exits])
