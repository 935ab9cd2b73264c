"""What examples make of directions: the large product of a step, over inputs that vary.

An input that has the same value in every example of the batch (the margin of a picture, a word
nobody uses, a unit that never fires) shifts a response by a constant. So the product runs over the
others, and one more column holds what the constant ones add up to.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from hardstep.evaluation.fused.compaction import compact, padded

WORTH = 8  # one input in so many must be constant for the copy of the rest to pay


class Varying(NamedTuple):
    """The inputs of a batch that vary, and what there is of the others."""

    chosen: Tensor  # which vary
    others: Tensor  # which do not
    constants: Tensor  # their values
    table: Tensor  # (chosen + 1, stride): rows of the inputs that vary, and ones


class Inputs(NamedTuple):
    """The examples that meet a weight."""

    table: Tensor  # (inputs, stride), examples last, zero beyond the last one
    varying: Varying | None  # unless nearly all of them vary

    @property
    def copied(self) -> int:
        """Numbers that a direction's response needs memory for, besides itself."""
        return 0 if self.varying is None else len(self.varying.table)


def inputs_of(table: Tensor, rows: int) -> Inputs:
    """Look which inputs vary over the first `rows` examples of a table."""
    constant = (table[:, :rows] == table[:, :1]).all(1)
    if int(constant.sum()) * WORTH < len(table):
        return Inputs(table, None)
    chosen, others = (~constant).nonzero()[:, 0], constant.nonzero()[:, 0]
    ones = torch.zeros_like(table[:1])
    ones[:, :rows] = 1
    reduced = torch.cat([table[chosen], ones])
    return Inputs(table, Varying(chosen, *padded(others, table[others, 0]), reduced))


def respond(directions: Tensor, inputs: Inputs, out: Tensor, room: Tensor) -> None:
    """Multiply directions (n, inputs) and the table's first columns, into `out` (n, columns).

    Args:
        directions: Directions over the inputs.
        inputs: Of `inputs_of`.
        out: Where to write.
        room: (n, copied), overwritten.
    """
    columns, varying = out.shape[1], inputs.varying
    if varying is None:
        torch.mm(directions, inputs.table[:, :columns], out=out)
        return
    compact(directions, varying.chosen, varying.others, varying.constants, room)
    torch.mm(room, varying.table[:, :columns], out=out)
