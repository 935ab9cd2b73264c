"""Whether gathered examples take less than whole forward passes.

An estimate from the shapes of a record, so that it is the same on every machine and in every run,
and takes no time: calls of operations, and bytes that they read and write. Products of the sizes at
which the choice is close are bound by these, too. Rates turn counts into nanoseconds; they were
fitted to measurements of 500 blocks of 52 networks (`benchmarks/step/gathered_rates.py`).
"""

from math import ceil

from hardstep.evaluation.blocks import Step
from hardstep.evaluation.candidates import Span
from hardstep.evaluation.effort import Effort, count_effort
from hardstep.evaluation.gathered import Gathering
from hardstep.evaluation.trace.nodes import Refused

# Nanoseconds: of a tile or a batched pass, of an operation's call in it, of a byte.
START, CALL, BYTE = 346_000, 12_900, 0.101
COMPILED_BYTE = 0.052  # where compiled passes stand between products
PLAIN_START, PLAIN_CALL, PLAIN_BYTE = 500_000, 2_780, 0.12
TILE, PLAIN_TILE = 64, 32  # candidates
MARGIN = 1.2  # the estimates are off by about a fifth


def check_worth(step: Step, gathering: Gathering, span: Span, share: float = 1.0) -> None:
    """Raise `Refused` where whole forward passes take less, as far as counts tell.

    Args:
        step: With the record of the forward pass.
        gathering: What would evaluate the block.
        span: The block, or a part of it.
        share: Of its examples, that a candidate reaches.
    """
    if step.record.unrolled:
        return  # torch cannot batch its recurrent layers, and one by one they are slow
    num = step.candidates.find_block(span.block).num
    gathered = estimate_gathered(step, gathering, span, num, share)
    whole = estimate_plain(step, gathering, span, num)
    if gathered > MARGIN * whole:
        raise Refused(
            "gathering the examples that change would take about "
            f"{gathered / whole:.1f} times as long as whole forward passes"
        )


def estimate_gathered(
    step: Step, gathering: Gathering, span: Span, num: int, share: float = 1.0
) -> float:
    """Nanoseconds of a candidate, one of so many, if all numbers of its examples change."""
    own, tile = _count_block(step, gathering, span), min(TILE, num)
    runs = 1 + ceil((tile - 1) / gathering.piece)  # of one candidate, then of pieces
    byte = BYTE if gathering.passes is None else COMPILED_BYTE
    return (START + CALL * own.calls * runs) / tile + share * byte * own.nbytes


def estimate_plain(step: Step, gathering: Gathering, span: Span, num: int) -> float:
    """The same in a batched pass, of which candidates share what the block does not reach."""
    own, whole = _count_block(step, gathering, span), _count_forward(step)
    tile = min(PLAIN_TILE, num)
    moved = own.nbytes + (whole.nbytes - own.nbytes) / tile
    return (PLAIN_START + PLAIN_CALL * whole.calls) / tile + PLAIN_BYTE * moved


def _count_block(step: Step, gathering: Gathering, span: Span) -> Effort:
    """What a block reaches; the same in every step of the same shapes."""
    known, key = step.memory.efforts, step.key(span)
    if key not in known:
        known[key] = count_effort(step.record, gathering.walk.nodes)
    return known[key]


def _count_forward(step: Step) -> Effort:
    known, key = step.memory.efforts, (step.record.signature, -1, 0)
    if key not in known:
        known[key] = count_effort(step.record, step.record.nodes)
    return known[key]
