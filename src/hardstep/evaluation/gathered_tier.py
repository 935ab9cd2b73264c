"""The tier for changes that spread over many numbers of an example: attention, embeddings.

The examples that candidates change run together, many candidates at once, so that they share
products. Candidates that change a row of a table which no example reads are the base.
"""

from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor

from hardstep.evaluation.blocks import GATHERED, HALVES, Occurring, Step, Tier
from hardstep.evaluation.candidates import Candidates, Span
from hardstep.evaluation.explain import Cost, TierReport
from hardstep.evaluation.fused import Unfusable
from hardstep.evaluation.gathered import Gathering, Mixed, Passes, Plan, Scene
from hardstep.evaluation.incremental.columns import Column
from hardstep.evaluation.incremental.walk import Walk
from hardstep.evaluation.memory import is_memory_error
from hardstep.evaluation.ops import REGISTRY
from hardstep.evaluation.tiling import Tiling, tile_evenly
from hardstep.evaluation.trace.record import Refused

TILE = 64  # candidates whose columns are carried together, at most
TILE_BYTES = 64 << 20  # of their largest values, of which rows or a few at a time are computed
ALIVE = 8  # times its largest value, which the examples of one candidate may take
COMPILED_BYTES = 64 << 20  # of the largest values of all candidates, for which code is compiled
EXAMPLES_BYTES = 4 << 20  # the largest value of the examples that run together


@dataclass(frozen=True)
class Gathered(Tier):
    """Changed examples of many candidates in one batch."""

    memory_budget: int
    name = GATHERED
    distrusted = (GATHERED,)

    def plan(self, step: Step, span: Span) -> Tiling | str:
        """See `Tier.plan`."""
        types = {step.candidates.base[name].dtype for name in step.names(span)}
        if types & HALVES or isinstance(step.scene, str):
            return ""
        try:
            gathering = _gather(step, span, step.scene)
            if not _is_for(gathering, step.scene) or not self._has_room(step, gathering):
                return ""
            read = self._find_read(step, span, gathering)
        except Mixed:
            return ""
        except Refused:
            raise
        except Exception as fault:  # ours; there is a slower tier that is right
            return _explain(fault)
        per_particle = step.candidates.offsets.shape[1] * step.candidates.offsets.shape[2]
        if read is None or span.start % per_particle or span.end % per_particle:
            run = partial(_run, gathering, step.candidates)
            return tile_evenly(span, _find_tile(gathering), run)
        self._remember(step, span, read)
        return _tile_by_examples(step, span, gathering, read)

    def _has_room(self, step: Step, gathering: Gathering) -> bool:
        """Whether the budget holds the record twice (examples in front), and one candidate."""
        needed = 2 * step.record.nbytes + ALIVE * gathering.walk.largest
        return needed <= self.memory_budget

    def _find_read(self, step: Step, span: Span, gathering: Gathering) -> Tensor | None:
        """How many examples each candidate reaches, if it changes nothing but rows of tables."""
        units = step.candidates.changed_rows(span)
        if units is None:
            return None
        sources = [step.record.sources[name] for name in step.names(span)]
        total: Tensor | None = None
        for node in gathering.plan.nodes:
            if not set(node.inputs) & set(sources):
                continue
            call = step.scene.calls.get(node.outputs[0])  # type: ignore[union-attr]
            if call is None or call.reaches is None or len(sources) != 1:
                return None
            table = step.record.values[sources[0]]
            rows = Column(0, torch.arange(len(table)), table)
            found = call.reaches(gathering.scene, rows)
            total = found if total is None else total | found
        return None if total is None else total.sum(dim=1)[units]

    @staticmethod
    def _remember(step: Step, span: Span, read: Tensor) -> None:
        """Say how many of the rows of a table were searched."""
        rows = step.candidates.changed_rows(span)
        assert rows is not None
        found, searched = (len(torch.unique(some)) for some in (rows[read > 0], rows))
        idle = int((read == 0).sum())
        step.memory.occurring[step.names(span)[0]] = Occurring(found, searched, idle)

    def describe(self, step: Step, span: Span, reason: str) -> TierReport:
        """See `Tier.describe`."""
        assert isinstance(step.scene, Scene)
        gathering = _gather(step, span, step.scene)
        passes = gathering.passes or Passes()
        cost = Cost(passes.operations, passes.nbytes).per(max(1, passes.candidates))
        return TierReport(GATHERED, reason, _find_tile(gathering), cost)


def _find_tile(gathering: Gathering) -> int:
    """Candidates at once, by their largest value."""
    return max(1, min(TILE, TILE_BYTES // gathering.walk.largest))


def _explain(fault: Exception) -> str:
    return f"no examples could be gathered: {type(fault).__name__}: {str(fault)[:120]}"


def _run(gathering: Gathering, candidates: Candidates, tile: Span) -> Tensor:
    """The losses of a tile.

    Raises:
        Unfusable: These candidates cannot be gathered, for a reason or by a fault of ours.
    """
    try:
        return gathering.losses(candidates, tile)
    except Mixed as reason:
        raise Unfusable(str(reason)) from None
    except Refused:
        raise
    except Exception as fault:
        if is_memory_error(fault):
            raise
        raise Unfusable(_explain(fault)) from fault


def _tile_by_examples(step: Step, span: Span, gathering: Gathering, read: Tensor) -> Tiling:
    """Tiles that reach about as many examples; candidates that reach none are the base.

    Args:
        step: Whose candidates they are.
        span: Whole particles.
        gathering: What evaluates them.
        read: How many examples each candidate reaches; all of a particle reach the same.
    """
    candidates = step.candidates
    each = candidates.offsets.shape[1] * candidates.offsets.shape[2]
    active = read.reshape(-1, each)[:, 0] > 0
    most = max(1, EXAMPLES_BYTES * gathering.scene.num // gathering.walk.largest)
    tiles = _cut(span, read.reshape(-1, each).sum(dim=1), most, each)

    def run_one(tile: Span) -> Tensor:
        losses = step.base.expand(tile.end - tile.start).clone()
        first = (tile.start - span.start) // each
        chosen = active[first : first + (tile.end - tile.start) // each]
        places = chosen.repeat_interleave(each).nonzero()[:, 0]
        if len(places):
            some = _choose(candidates, tile, chosen, each)
            part = Span(span.block, 0, len(places))
            run = partial(_run, gathering, some)
            losses[places] = torch.cat(part.evaluate(run, len(places)))
        return losses

    def run_all(wanted: list[Span]) -> Tensor:
        parts = [part for tile in wanted for part in (tiles if tile == span else [tile])]
        return torch.cat([run_one(part) for part in parts])

    return Tiling(span, lambda: tiles, run_all)


def _gather(step: Step, span: Span, scene: Scene) -> Gathering:
    walk = Walk(step.slice(span), REGISTRY)
    whole = sum(s.end - s.start for s in step.candidates.spans() if s.block == span.block)
    pays = step.base.device.type == "cpu" and walk.largest * whole >= COMPILED_BYTES
    passes = step.memory.passes.setdefault(step.key(span), Passes()) if pays else None
    return Gathering(walk, Plan(walk, scene, REGISTRY), step.lifts, passes)


def _is_for(gathering: Gathering, scene: Scene) -> bool:
    """Whether examples have tokens, or are chosen by a table of which candidates change rows.

    Time steps one by one do not pay where all examples change: torch's layer takes less.
    """
    nodes = gathering.plan.nodes
    outputs = [index for node in nodes for index in node.outputs]
    changed = gathering.walk.sources.union(outputs)
    for node in nodes:
        call = scene.calls.get(node.outputs[0])
        if call is not None and call.reaches is not None and node.args[0].index in changed:
            return True
    if any((call := scene.calls.get(node.outputs[0])) and call.stacks for node in nodes):
        return False
    return any(scene.places[i] is not None and len(scene.shape(i)) > 1 for i in outputs)


def _choose(candidates: Candidates, span: Span, active: Tensor, each: int) -> Candidates:
    """The candidates of some of the particles of a span."""
    own = slice(span.start // each, span.end // each)
    asked = candidates.asked[own][active.to(candidates.asked.device)]
    return replace(candidates, asked=asked, offsets=candidates.offsets[own][active])


def _cut(span: Span, read: Tensor, most: int, each: int) -> list[Span]:
    """Tiles of whole particles that reach about as many examples, at least one particle each."""
    ends = torch.div((read.cumsum(0) - 1).clamp_min(0), most, rounding_mode="floor")
    _, counts = torch.unique_consecutive(ends, return_counts=True)
    tiles, start = [], span.start
    for count in counts.tolist():
        tiles.append(Span(span.block, start, start + each * count))
        start += each * count
    return tiles
