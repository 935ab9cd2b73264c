"""The tier for pictures and what follows from them: lists of numbers that differ from the base."""

from dataclasses import dataclass

import torch
from torch import Tensor

from hardstep.evaluation.blocks import EVENTS, Step, Tier, explain_fault
from hardstep.evaluation.candidates import Span
from hardstep.evaluation.events import (
    EventKernel,
    Found,
    OpenTile,
    plan_events,
    write_code,
)
from hardstep.evaluation.explain import Cost, TierReport
from hardstep.evaluation.fused import Unfusable
from hardstep.evaluation.incremental.walk import Walk
from hardstep.evaluation.memory import is_memory_error
from hardstep.evaluation.ops import REGISTRY, count_work
from hardstep.evaluation.tiling import Tiling
from hardstep.evaluation.trace.nodes import Node, Refused

EVENT_COST = 3  # operations of a forward pass in the time of one with events, about
FEW = 8  # candidates whose operations decide: whole groups for two threads
EVENT_BYTES = 64 << 20  # of a tile's channels that enter and of values that leave
SCRATCH_BYTES = 256 << 20  # of a thread, for changed values


@dataclass(frozen=True)
class Events(Tier):
    """Lists of numbers that differ from the base, for pictures and what follows from them.

    Where nearly everything differs, a plain forward pass takes less time, and the incremental tier
    takes more; so the operations of a step's first candidates are counted. A clock would decide
    otherwise from run to run.
    """

    memory_budget: int
    name = EVENTS
    distrusted = (EVENTS,)

    def plan(self, step: Step, span: Span) -> Tiling | str:
        """See `Tier.plan`."""
        part = step.slice(span)
        nodes = part.nodes
        if not any(REGISTRY[node.name].of_pictures for node in nodes):
            return ""
        try:
            kernel = self._kernel(step, span, nodes)
        except Refused:
            raise
        except Exception as fault:  # some are ours; there is a slower tier that is right
            reason = explain_fault(fault)
            step.memory.refusals[step.key(span), EVENTS] = reason
            return reason
        size = self._tile_size(step, kernel)
        first = next(span.tiles(size))
        few = min(first.num, FEW)
        try:
            opened = _open(step, kernel, first, few)
            opened.run(0, few)
        except Unfusable as unfit:  # these candidates, not the operations
            return str(unfit)
        work = float(opened.work[:few].double().mean())
        # Products with patches, and what torch computes behind the cuts, are no events.
        plain = kernel.program.filter_work + count_work(step.record, kernel.program.after)
        if EVENT_COST * work * kernel.program.lanes + plain > step.forward_work:
            raise Refused("a candidate changes so much that whole forward passes take less")
        walk, begun = Walk(part, REGISTRY), {opened.tile: opened}

        def run(tile: Span) -> Tensor:
            rest = begun.pop(tile, None)
            if rest is None:
                found = kernel.run(step.candidates, tile)
            else:
                rest.run(few, rest.num)
                found = rest.leave()
            return _carry_on(step, kernel, walk, found)

        def run_all(tiles: list[Span]) -> Tensor:
            return torch.cat([piece for tile in tiles for piece in tile.evaluate(run, size)])

        return Tiling(span, lambda: list(span.tiles(size)), run_all)

    def _kernel(self, step: Step, span: Span, nodes: list[Node]) -> EventKernel:
        key, programs = step.key(span), step.memory.programs
        if key not in programs:
            program = plan_events(step.candidates, step.record, nodes, span, REGISTRY)
            programs[key] = program, write_code(program)
        program, code = programs[key]
        if code.scratch > SCRATCH_BYTES:
            raise Unfusable(f"changed values need {code.scratch / 1e6:,.0f} MB for each thread")
        return EventKernel(program, code, step.event_tables)

    def _tile_size(self, step: Step, kernel: EventKernel) -> int:
        """Whole particles, as many as memory allows."""
        each = step.candidates.per_particle
        most = min(EVENT_BYTES, self.memory_budget) // kernel.bytes_per_candidate
        return max(1, most // each) * each

    def describe(self, step: Step, span: Span, reason: str) -> TierReport:
        """See `Tier.describe`; operations are those that the events of these candidates took.

        There is no kernel of the other kind for convolutions, so no model could be faster.
        """
        del reason
        kernel = self._kernel(step, span, step.slice(span).nodes)
        size = self._tile_size(step, kernel)
        tiles = [kernel.run(step.candidates, tile).work for tile in span.tiles(size)]
        followed = float(torch.cat(tiles).double().mean()) * kernel.program.lanes
        operations = followed + kernel.program.filter_work
        return TierReport(EVENTS, "", size, Cost(2 * operations, 8 * operations))


def _open(step: Step, kernel: EventKernel, tile: Span, few: int) -> OpenTile:
    """A tile, or only its first candidates, if memory does not hold it."""
    try:
        return kernel.open(step.candidates, tile)
    except (MemoryError, RuntimeError) as error:
        if not is_memory_error(error):
            raise
    return kernel.open(step.candidates, Span(tile.block, tile.start, tile.start + few))


def _carry_on(step: Step, kernel: EventKernel, walk: Walk, found: Found) -> Tensor:
    """The losses of candidates whose changes have left the kernel."""
    num = len(found.work)
    if found.pairs is None:
        return step.base.expand(num)
    return walk.finish(found.env, kernel.program.after, found.pairs, num)
