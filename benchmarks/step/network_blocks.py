"""What the blocks of a step take, watched from outside while the step runs."""

import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from hardstep.evaluation import tiers
from hardstep.evaluation.blocks import GATHERED
from hardstep.evaluation.events import OpenTile
from hardstep.evaluation.explain import OperationCounter
from hardstep.evaluation.gathered import Passes
from hardstep.evaluation.opened import OpenStep

RECORDING = -1  # the recorded forward pass, in place of a block's number
PER_LANE = 2  # operations: a number is multiplied and added


@contextmanager
def timed_blocks() -> Iterator[dict[int, dict[str, float]]]:
    """Fills in the seconds that the blocks of a step take, and its recorded forward pass."""
    spent: dict[int, dict[str, float]] = {}
    evaluate, record = OpenStep.evaluate, tiers.record
    with (
        patch.object(OpenStep, "evaluate", _timing(evaluate, spent, lambda given: given[1])),
        patch.object(tiers, "record", _timing(record, spent, lambda _: None)),
    ):
        yield spent


def _timing(
    function: Callable[..., Any], spent: dict[int, dict[str, float]], span: Callable[[Any], Any]
) -> Callable[..., Any]:
    def measured(*args: Any) -> Any:
        wall, cpu = time.perf_counter(), time.process_time()
        result = function(*args)
        block = getattr(span(args), "block", RECORDING)
        known = spent.setdefault(block, {"wall": 0.0, "cpu": 0.0})
        known["wall"] += time.perf_counter() - wall
        known["cpu"] += time.process_time() - cpu
        return result

    return measured


@contextmanager
def counted_operations() -> Iterator[dict[int, float]]:
    """Fills in the operations per candidate of blocks whose candidates differ in them, at the end.

    Of events and of gathered examples: those of kernels, and those of torch beside them.
    """
    totals: dict[int, float] = defaultdict(float)
    candidates: dict[int, int] = defaultdict(int)
    mean: dict[int, float] = {}
    evaluate, leave, count = OpenStep.evaluate, OpenTile.leave, Passes.count
    current = RECORDING

    def counted(step: OpenStep, span: Any, *given: Any) -> Any:
        nonlocal current
        current = span.block
        with OperationCounter() as counter:
            result = evaluate(step, span, *given)
        totals[span.block] += counter.cost.operations
        if result.tier.name == GATHERED:
            candidates[span.block] += len(result.losses)
        return result

    def counted_pass(passes: Passes, made: Any, examples: int, nbytes: int) -> None:
        count(passes, made, examples, nbytes)
        totals[current] += made.operations * examples

    def counted_leave(opened: OpenTile) -> Any:
        found, block = leave(opened), opened.tile.block
        program = opened.kernel.program
        done = program.lanes * float(found.work.sum()) + program.filter_work * opened.num
        totals[block] += PER_LANE * done
        candidates[block] += opened.num
        return found

    with (
        patch.object(OpenStep, "evaluate", counted),
        patch.object(OpenTile, "leave", counted_leave),
        patch.object(Passes, "count", counted_pass),
    ):
        yield mean
    mean.update({block: totals[block] / num for block, num in candidates.items()})
