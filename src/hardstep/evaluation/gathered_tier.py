"""The tier for changes that spread over many numbers of an example: attention, embeddings.

The examples that candidates change run together, many candidates at once, so that they share
products. Where that would take more than whole forward passes, these are taken.
"""

from dataclasses import dataclass
from functools import partial

from torch import Tensor

from hardstep.evaluation.blocks import GATHERED, HALVES, Step, Tier
from hardstep.evaluation.candidates import Candidates, Span
from hardstep.evaluation.explain import Cost, TierReport
from hardstep.evaluation.fused import Unfusable
from hardstep.evaluation.gathered import Gathering, Mixed, Passes, Plan, Scene
from hardstep.evaluation.gathered_rows import Reading, find_reading
from hardstep.evaluation.gathered_worth import check_worth
from hardstep.evaluation.incremental.walk import Walk
from hardstep.evaluation.memory import is_memory_error
from hardstep.evaluation.ops import REGISTRY
from hardstep.evaluation.tiling import Tiling, tile_evenly
from hardstep.evaluation.trace.nodes import Refused

TILE = 64  # candidates whose columns are carried together, at most
TILE_BYTES = 64 << 20  # of their largest values, of which rows or a few at a time are computed
ALIVE = 8  # times its largest value, which the examples of one candidate may take
COMPILED_BYTES = 64 << 20  # of the largest values of all candidates, for which code is compiled


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
            reading = find_reading(step, span, gathering)
            if reading is None:
                check_worth(step, gathering, span)
                run = partial(_run, gathering, step.candidates)
                return tile_evenly(span, _find_tile(gathering), run)
            whole = _find_whole(step, gathering, reading)
            check_worth(step, gathering, span, whole.mean / gathering.scene.num)
            return self._tile_by_examples(step, gathering, reading)
        except Mixed:
            return ""
        except Refused:
            raise
        except Exception as fault:  # ours; there is a slower tier that is right
            return _explain(fault)

    def _has_room(self, step: Step, gathering: Gathering) -> bool:
        """Whether the budget holds the record twice (examples in front), and one candidate."""
        needed = 2 * step.record.nbytes + ALIVE * gathering.walk.largest
        return needed <= self.memory_budget

    @staticmethod
    def _tile_by_examples(step: Step, gathering: Gathering, reading: Reading) -> Tiling:
        """Tiles that reach about as many examples."""
        step.memory.occurring[step.names(reading.span)[0]] = reading.occurring
        return reading.tile(reading.cut(gathering), partial(_run, gathering))

    def describe(self, step: Step, span: Span, reason: str) -> TierReport:
        """See `Tier.describe`."""
        assert isinstance(step.scene, Scene)
        gathering = _gather(step, span, step.scene)
        passes = gathering.passes or Passes()
        cost = Cost(passes.operations, passes.nbytes).per(max(1, passes.candidates))
        report = TierReport(GATHERED, reason, _find_tile(gathering), cost)
        own = find_reading(step, span, gathering)
        if own is None:
            return report
        whole = _find_whole(step, gathering, own)
        share = whole.mean / own.mean if own.mean else 1.0
        usual = whole.usual
        return report._replace(start=None if usual is None else usual.start, share=share)


def _find_whole(step: Step, gathering: Gathering, part: Reading) -> Reading:
    """What the whole block reads, of which a part may have been asked for."""
    block = step.candidates.find_block(part.span.block)
    whole = part if part.span == block else find_reading(step, block, gathering)
    assert whole is not None
    return whole


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
