"""The exactness suite at length: `python -m tests.evaluation.long_run [first] [count] [kind]`.

Compares the losses of the fast tiers with plain forward passes on random models (default 500, seeds
from 1,000) over eight subspaces, proves every difference a tie, and prints what was counted. Every
other model is a network for pictures, the rest in turn of ordinary layers, recurrent and of
attention; of the kind `sequences`, only the last two. Half of those of attention have compiled
passes, and a quarter are gathered only where that pays.
"""

import collections
import sys
from typing import Any
from unittest.mock import patch

import torch

from hardstep.evaluation import gathered_tier
from hardstep.subspaces import Full, LayerWise, LowRank, RowWise, SharedRows, Sparse

from . import random_attention
from .random_models import draw
from .random_pictures import draw_problem
from .random_recurrences import draw_recurrence
from .test_incremental import FAST, check_losses

SUBSPACES = (
    RowWise(2),
    RowWise(1, SharedRows()),
    RowWise(2, redraw=1, share=0.4),
    RowWise(None),
    Full(),
    LayerWise(1),
    Sparse(1),
    LowRank(1),
)


def _draw_pictures(seed: int) -> tuple[Any, list[str]]:
    return draw_problem(seed), ["pictures"]


# Mostly networks this small are gathered, too, though it takes less to evaluate them as a whole.
RULES = (*[lambda *given: None] * 3, gathered_tier.check_worth)
OTHERS = (draw, draw_recurrence, random_attention.draw_problem)
KINDS = {
    "all": tuple(kind for other in OTHERS for kind in (other, _draw_pictures)),
    "sequences": (draw_recurrence, random_attention.draw_problem),
}


def main() -> None:
    """Run and print."""
    torch.set_num_threads(1)
    given = sys.argv[1:] + ["1000", "500", "all"][len(sys.argv) - 1 :]
    first, count, drawn = int(given[0]), int(given[1]), KINDS[given[2]]
    notes, parts, ties, fast = collections.Counter(), collections.Counter(), 0, 0
    unexplained = {}
    for seed in range(first, first + count):
        problem, names = drawn[seed % len(drawn)](seed)
        turn, place = divmod(seed // len(drawn), len(SUBSPACES))
        subspace = SUBSPACES[place]
        limit = 0 if turn % 2 == 0 else gathered_tier.COMPILED_BYTES
        try:
            with (
                patch.object(gathered_tier, "COMPILED_BYTES", limit),
                patch.object(gathered_tier, "check_worth", RULES[turn % len(RULES)]),
            ):
                evaluator, num_ties = check_losses(problem, names, subspace, torch.float64)
        except AssertionError as error:  # the others are still worth a look
            unexplained[seed] = str(error)
            continue
        ties += num_ties
        fast += FAST.issuperset(evaluator.notes.values())
        notes.update(note if note in FAST else "fallback" for note in evaluator.notes.values())
        parts.update(set(names))
    agreeing = count - len(unexplained)
    print(f"{agreeing} of {count} models agree; {ties} losses differ, each a proven tie")
    for seed, where in unexplained.items():
        print(f"seed {seed} does not: {where}")
    print(f"{fast} of {count} models wholly on a fast path ({fast / count:.0%})")
    print(
        f"of {sum(notes.values())} blocks of parameters {notes['fused']} were fused, "
        f"{notes['events']} followed as events, {notes['gathered']} gathered by example, "
        f"{notes['incremental']} followed operation by operation, "
        f"{notes['fallback']} fell back"
    )
    for name, times in sorted(parts.items()):
        print(f"{times:5d}  {name}")
    sys.exit(bool(unexplained))


if __name__ == "__main__":
    main()
