"""Learned first states of recurrent layers: rows of a parameter, the same for all examples."""

from torch import Size

from hardstep.evaluation.fused.expressions import Access, Fn, Kind
from hardstep.evaluation.fused.stacks import keep_stack, read_old
from hardstep.evaluation.fused.tables import Replaced
from hardstep.evaluation.fused.translate import Changed, Stack, Translator


def repeats_rows(old: Size, new: Size) -> bool:
    """Whether (layers, 1, units), or what is broadcast to it, became (layers, examples, units)."""
    whole = (1,) * (len(new) - len(old)) + tuple(old)
    if len(whole) != len(new) or len(new) not in (2, 3):
        return False
    return (*whole[:-2], 1, whole[-1]) == (*new[:-2], whole[-2], new[-1])


def enter_rows(t: Translator, source: int, out: int, by_unit: bool) -> None:
    """A state, or a stack of those of layers, of which candidates replace one for every example.

    Args:
        t: What follows the block.
        source: The parameter.
        out: The state or the stack.
        by_unit: Whether a candidate's unit says which layer it is; there is but one otherwise.
    """
    num, size = t.base(source).shape[:-1].numel(), t.base(out).shape[-1]
    new = t.g.read(Access.CANDIDATE_AXIS, t.kind(source), t.program.table(Replaced(source)), size)
    unit, stack = t.g.unit() if by_unit else None, Stack(out, 0, (None,) * num)
    if unit is not None:
        t.program.exits.append(t.g.apply(Fn.EQ, unit, unit))  # all examples count

    def read_row(number: int) -> Changed:
        if unit is None or num == 1:
            return Changed(new, -1)
        here = t.g.apply(Fn.EQ, unit, t.g.constant(number, Kind.I64))
        return Changed(t.g.select(here, new, read_old(t, stack, number, False)), -1)

    if t.base(out).dim() == 2:
        t.values[out] = read_row(0)
    else:
        keep_stack(t, out, 0, map(read_row, range(num)))
