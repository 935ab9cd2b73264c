"""What examples make of directions: the large product of a step, over inputs that vary.

An input that has the same value in every example of the batch (the margin of a picture, a word
nobody uses, a unit that never fires) shifts a response by a constant. So the product runs over the
others, and one more column holds what the constant ones add up to.
"""

from typing import NamedTuple

import torch
from torch import Tensor

WORTH = 8  # one input in so many must be constant for the copy of the rest to pay
WIDTH = 8  # columns of a product whose results do not depend on how many rows it has


class Inputs(NamedTuple):
    """The examples that meet a weight."""

    table: Tensor  # (inputs, stride), examples last, zero beyond the last one
    kept: Tensor | None  # inputs that vary, and any one more; nothing to use the table as it is
    varying: Tensor  # (kept, stride): their rows of the table, and ones
    constant: Tensor  # (inputs, WIDTH): values of those that do not vary, zero elsewhere

    @property
    def copied(self) -> int:
        """Numbers that a direction's response needs memory for, besides itself."""
        return 0 if self.kept is None else len(self.kept)


def inputs_of(table: Tensor, rows: int) -> Inputs:
    """Look which inputs vary over the first `rows` examples of a table."""
    constant = (table[:, :rows] == table[:, :1]).all(1)
    if rows == 0 or int(constant.sum()) * WORTH < len(table):
        return Inputs(table, None, table, table[:0])
    varying = (~constant).nonzero()[:, 0]
    kept = torch.cat([varying, varying.new_zeros(1)])
    chosen = table[kept]
    chosen[-1, :rows] = 1
    values = torch.where(constant, table[:, 0], 0)
    return Inputs(table, kept, chosen, values[:, None].expand(-1, WIDTH).contiguous())


def respond(directions: Tensor, inputs: Inputs, out: Tensor, room: Tensor) -> None:
    """Multiply directions (n, inputs) and the table's first columns, into `out` (n, columns).

    Args:
        directions: Directions over the inputs.
        inputs: Of `inputs_of`.
        out: Where to write.
        room: (n, copied), overwritten.
    """
    columns = out.shape[1]
    if inputs.kept is None:
        torch.mm(directions, inputs.table[:, :columns], out=out)
        return
    torch.index_select(directions, 1, inputs.kept, out=room)
    room[:, -1] = (directions @ inputs.constant)[:, 0]
    torch.mm(room, inputs.varying[:, :columns], out=out)
