"""Whether gathered examples take less than whole forward passes.

A particle of a block is evaluated and what torch does meanwhile is counted; a forward pass is
counted on the record. Rates turn counts into nanoseconds: they were fitted to measurements of 500
blocks (`benchmarks/step/gathered_rates.py`), and a clock would decide otherwise from run to run.
"""

from collections.abc import Callable
from math import ceil
from typing import NamedTuple

from torch import Tensor

from hardstep.evaluation.blocks import Step
from hardstep.evaluation.candidates import Span
from hardstep.evaluation.effort import Effort, EffortCounter, count_effort
from hardstep.evaluation.gathered import Gathering
from hardstep.evaluation.ops import REGISTRY
from hardstep.evaluation.trace.record import Refused

# Nanoseconds: of an operation's call, of an addition or multiplication of a product, of a byte.
GATHERED = Effort(5000, 0.0105, 0.066)
COMPILED_BYTE = 0.011  # of a compiled pass: rows that were just written
PLAIN = Effort(3000, 0.0099, 0.088)  # of values of many candidates, which leave the cache
PLAIN_TILE = 32  # candidates of a batched pass
PLAIN_START = 610_000  # of each such pass
MARGIN = 1.1  # counts say what takes less only up to about a fifth


class Trial(NamedTuple):
    """Candidates that were evaluated to see what they take."""

    span: Span
    losses: Tensor
    effort: Effort
    compiled_bytes: float


def try_out(gathering: Gathering, span: Span, run: Callable[[Span], Tensor]) -> Trial:
    """Evaluate some candidates."""
    passes = gathering.passes
    before = passes.nbytes if passes is not None else 0.0
    with EffortCounter() as counter:
        losses = span.evaluate_whole(run)
    compiled = passes.nbytes - before if passes is not None else 0.0
    return Trial(span, losses, counter.effort, compiled)


def check_worth(
    step: Step, gathering: Gathering, trial: Trial, tile: float, share: float = 1.0
) -> None:
    """Raise `Refused` where whole forward passes take less, as far as counts tell.

    Args:
        step: With the record of the forward pass.
        gathering: What evaluated the trial.
        trial: Some candidates.
        tile: How many others will be evaluated together.
        share: Of what one of them took, that others take on average.
    """
    if step.record.unrolled:
        return  # torch cannot batch its recurrent layers, and one by one they are slow
    gathered = estimate_gathered(gathering, trial, tile, share)
    block = step.candidates.find_block(trial.span.block)
    whole = estimate_plain(step, gathering, block.num)
    if gathered > MARGIN * whole:
        raise Refused(
            "gathering the examples that change would take about "
            f"{gathered / whole:.1f} times as long as whole forward passes"
        )


def estimate_gathered(gathering: Gathering, trial: Trial, tile: float, share: float) -> float:
    """Nanoseconds of a candidate; see `check_worth`."""
    num, taken = trial.span.num, trial.effort
    calls = taken.calls * _count_runs(gathering, tile) / _count_runs(gathering, num)
    each = Effort(calls / tile, *(share * own / num for own in taken[1:]))
    return each.weigh(GATHERED) + share * trial.compiled_bytes / num * COMPILED_BYTE


def estimate_plain(step: Step, gathering: Gathering, num: int) -> float:
    """The same in a batched pass; candidates share what a block does not reach.

    Args:
        step: With the record of the forward pass.
        gathering: That knows the block.
        num: Candidates of the block.
    """
    tile = min(PLAIN_TILE, num)
    own = count_effort(step.record, gathering.walk.nodes, REGISTRY)
    shared = step.forward_effort.plus(own, -1.0).plus(Effort(own.calls))
    return own._replace(calls=0).plus(shared, 1 / tile).weigh(PLAIN) + PLAIN_START / tile


def _count_runs(gathering: Gathering, num: float) -> int:
    """How often the operations are called for so many candidates: for one, then for pieces."""
    return 1 + ceil((num - 1) / gathering.piece)
