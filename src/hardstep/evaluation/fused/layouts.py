"""What kernels read of a record: examples last, and apart from the rest the inputs that vary."""

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

from hardstep.evaluation.fused.compile import run_kernel
from hardstep.evaluation.fused.emit_layouts import write_turning, write_varying
from hardstep.evaluation.fused.emit_products import CHAINS, write_shortening
from hardstep.evaluation.fused.expressions import KINDS

FLOATS = (torch.float32, torch.float64)
CONSTANT_SHARE = 8  # one input in so many must be constant for the copy of the rest to pay
SEVERAL = 8 << 10  # numbers from which on a kernel takes less time than torch


def lay_out(value: Tensor, order: Tensor | None, stride: int) -> Tensor:
    """(examples,) or (examples, units) with examples last, in order, padded with zeros."""
    if order is not None:
        value = value[order]
    if value.dim() == 2 and value.numel() >= SEVERAL and value.dtype in FLOATS:
        table = value.new_empty(value.shape[1], stride)
        tables = [value.contiguous(), table, torch.tensor([value.shape[1]])]
        text = write_turning(KINDS[value.dtype])
        run_kernel(text, tables, value.shape[1], len(value), stride, 0)
        return table
    table = value.new_zeros(*value.shape[1:], stride)
    table[..., : len(value)] = value.movedim(0, -1)
    return table


class Varying(NamedTuple):
    """The inputs of a batch that vary, and what there is of the others."""

    chosen: Tensor  # which vary
    others: Tensor  # which do not, filled up with first inputs, since several are read at a time
    constants: Tensor  # their values, and zeros for what was filled up
    table: Tensor  # (chosen + 1, stride): the inputs that vary, and ones


class Inputs(NamedTuple):
    """The examples that meet a weight.

    An input that has the same value in every example (the margin of a picture, a word nobody uses,
    a unit that never fires) shifts a response by a constant. So the product with directions, the
    large one of a step, runs over the others, and over one more for what the constant ones add.
    """

    table: Tensor  # (inputs, stride), examples last, zero beyond the last one
    varying: Varying | None  # unless nearly all of them vary

    @property
    def copied(self) -> int:
        """Numbers that a direction's response needs memory for, besides itself."""
        return 0 if self.varying is None else len(self.varying.table)


def find_varying(table: Tensor, num_examples: int) -> Inputs:
    """Look which inputs vary over the first examples of a table."""
    varies = _find_rows_that_vary(table, num_examples)
    chosen = varies.nonzero()[:, 0]
    if (len(table) - len(chosen)) * CONSTANT_SHARE < len(table):
        return Inputs(table, None)
    others = (~varies).nonzero()[:, 0]
    varying = table.new_empty(len(chosen) + 1, table.shape[1])
    torch.index_select(table, 0, chosen, out=varying[:-1])
    varying[-1, :num_examples], varying[-1, num_examples:] = 1, 0
    fill = (0, -len(others) % CHAINS)
    others, constants = pad(others, fill), pad(table[others, 0], fill)
    return Inputs(table, Varying(chosen, others, constants, varying))


def _find_rows_that_vary(table: Tensor, num: int) -> Tensor:
    """The rows of which the first numbers are not one and the same."""
    varies = torch.empty(len(table), dtype=torch.bool)
    text = write_varying(KINDS[table.dtype])
    run_kernel(text, [table, varies], len(table), num, table.stride(0), 0)
    return varies


def respond(directions: Tensor, inputs: Inputs, out: Tensor, room: Tensor) -> None:
    """Multiply directions (n, inputs) and the table's first columns, into `out` (n, columns).

    Args:
        directions: Directions over the inputs.
        inputs: Of `find_varying`.
        out: Where to write.
        room: (n, copied), overwritten.
    """
    columns, varying = out.shape[1], inputs.varying
    if varying is None:
        torch.mm(directions, inputs.table[:, :columns], out=out)
        return
    num, size = directions.shape
    sizes = torch.tensor([size, len(varying.chosen), len(varying.others)])
    tables = [directions.contiguous(), *varying[:3], room, sizes]
    run_kernel(write_shortening(KINDS[directions.dtype]), tables, num, 0, 0, 0)
    torch.mm(room, varying.table[:, :columns], out=out)
