"""Many parameter sets per call: `vmap` over stacked tensors.

Only the tensors a candidate changes are stacked; the others are shared, so whatever precedes
the changed tensor is computed once per tile. Tiles have a fixed number of candidates, since
matrix products round differently at different shapes: the losses are the same bits whatever
the memory budget, as long as it holds one tile. Where it does not, tiles are halved until the
measured memory of their forward passes fits.

A model that `vmap` cannot run (branches on values, leaves torch, custom kernels) is evaluated
one by one, and `note` says why. So is one whose random numbers fall elsewhere under `vmap`: dropout
fills a mask in the order in which its input lies in memory, and a batch may lie there otherwise.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from hardstep._checks import check_count, check_positive
from hardstep._torch import tree_leaves
from hardstep.errors import HardstepError
from hardstep.evaluation.candidates import Candidates, Span
from hardstep.evaluation.explain import Cost, Describe, Explanation, TierReport, measure_step
from hardstep.evaluation.memory import DispatchMode, Findings, LiveBytes, is_memory_error
from hardstep.evaluation.onebyone import ONE_BY_ONE, OneByOne
from hardstep.evaluation.problem import Problem
from hardstep.evaluation.sandbox import isolate, reseed, run_vmap
from hardstep.evaluation.sharing import ByTiles, Questions, ask_once
from hardstep.evaluation.verify import find_contradiction

BATCHED = "batched"
_UNUSED = "not used yet"
TILE_BYTES = 128 << 20  # a tile of the default size works on about this much at a time
MAX_TILE = 32  # more candidates per call stop paying and start missing the caches
LIVE_VALUES = 4  # intermediate results of the largest size that are alive together
COMPARED = 4  # candidates that show where random numbers fall
VMAP_COPIES = 1.5  # under vmap a bias is added apart, and what must be permuted is copied


class Batched:
    """The evaluator for ordinary models.

    Args:
        tile: Candidates per call; by default up to 32, fewer where activations are large.
        memory_budget: Bytes that one call may take, as measured on a forward pass. Where a tile
            would take more, and after any out-of-memory error, the tile is halved (and last
            bits may change). A single candidate is always evaluated, whatever it takes.
    """

    def __init__(self, tile: int | None = None, memory_budget: int = 4 << 30) -> None:
        if tile is not None:
            check_count("Batched: tile", tile)
        check_positive("Batched: memory_budget", memory_budget)
        self.tile = tile
        self.memory_budget = memory_budget
        self.note = _UNUSED
        self._refused: Findings[nn.Module, str] = Findings()
        self._sizes: Findings[nn.Module, dict[str, _Pass]] = Findings()
        self._compared: Findings[nn.Module, set[str]] = Findings()

    def __repr__(self) -> str:
        return f"Batched(tile={self.tile}, memory_budget={self.memory_budget})"

    @property
    def path(self) -> str:
        """The tier of the last losses, for a progress bar."""
        return self.note.split(":")[0]

    def losses(
        self, candidates: Candidates, problem: Problem, spans: Sequence[Span] | None = None
    ) -> Tensor:
        """Losses of all candidates (or of some spans) tile by tile, or one by one."""
        refused = self._refused.get(problem.model)
        if refused is None:
            # Nothing of the attempt may be alive during the next, hence no work in an `except`.
            try:
                losses = self._run_tiles(candidates, problem, spans)
            except HardstepError:
                raise
            except Exception as reason:  # anything a user's model may raise under vmap
                refused = _first_sentence(reason)
            else:
                self.note = BATCHED
                return losses
        # A real fault of the model raises here too, and is not remembered.
        losses = self._one_by_one(problem).losses(candidates, problem, spans)
        self._refused[problem.model] = refused
        self.note = f"{ONE_BY_ONE}: {refused}"
        return losses

    def tiles(self, candidates: Candidates, problem: Problem, span: Span) -> list[Span]:
        """Where a span may be cut: whatever part is evaluated, its losses are those of the whole.

        A model that has not been seen is tried on the first tile, as the whole span would be.
        """
        if self.note == _UNUSED:
            size = self._tile_size(candidates, problem, span)
            self.losses(candidates, problem, [next(span.tiles(size))])
        if problem.model in self._refused:
            return self._one_by_one(problem).tiles(candidates, problem, span)
        return list(span.tiles(self._tile_size(candidates, problem, span)))

    def open(self, candidates: Candidates, problem: Problem) -> ByTiles:
        """A step of which parts can be evaluated."""
        tiles = partial(self.tiles, candidates, problem)
        run = partial(self.losses, candidates, problem)
        return ByTiles(list(candidates.spans()), tiles, run)

    def ask(self, candidates: Candidates, problem: Problem) -> Questions:
        """One question."""
        del candidates, problem
        return ask_once()

    def _one_by_one(self, problem: Problem) -> OneByOne:
        known = self._sizes.get(problem.model, {}).get(find_shapes(problem))
        return OneByOne(memory_budget=max(1, self.memory_budget - (known.peak if known else 0)))

    def describe(
        self, candidates: Candidates, problem: Problem, span: Span, reason: str
    ) -> TierReport:
        """How candidates that were just evaluated were evaluated, and why not faster."""
        refused = self._refused.get(problem.model)
        if refused is not None:
            reasons = "; ".join(filter(None, (reason, refused)))
            return OneByOne().describe(candidates, problem, span, reasons)
        return TierReport(BATCHED, reason, self._tile_size(candidates, problem, span), Cost())

    def run(self, candidates: Candidates, problem: Problem, reason: str, span: Span) -> Describe:
        """Evaluate some candidates of a block; what is returned describes how it was done."""
        self.losses(candidates, problem, [span])
        return partial(self.describe, candidates, problem, span, reason)

    def explain(self, candidates: Candidates, problem: Problem) -> Explanation:
        """Path, reason and cost of every parameter, and the memory of a step."""
        run = partial(self.run, candidates, problem, "")
        return measure_step(candidates, problem, lambda: run)

    def _run_tiles(
        self, candidates: Candidates, problem: Problem, spans: Sequence[Span] | None
    ) -> Tensor:
        self._check_random(candidates, problem)
        run = partial(_run_tile, candidates, problem)
        pieces: list[Tensor] = []
        for span in candidates.spans() if spans is None else spans:
            pieces += span.evaluate(run, self._tile_size(candidates, problem, span))
        return torch.cat(pieces)

    def _check_random(self, candidates: Candidates, problem: Problem) -> None:
        """Refuse a model whose first losses are not those of plain forward passes."""
        known, shapes = self._know(candidates, problem), find_shapes(problem)
        if not known.is_random or shapes in self._compared.setdefault(problem.model, set()):
            return
        few = next(next(candidates.spans()).tiles(COMPARED))
        losses = _run_tile(candidates, problem, few)
        with isolate(problem.model):
            base = problem.run(candidates.base, {}, candidates.seed)
        if find_contradiction(candidates, problem, few, losses, base) is not None:
            raise RuntimeError("random numbers fall elsewhere in a batch of candidates")
        self._compared[problem.model].add(shapes)

    def _know(self, candidates: Candidates, problem: Problem) -> "_Pass":
        shapes, known = find_shapes(problem), self._sizes.setdefault(problem.model, {})
        if shapes not in known:
            known[shapes] = _measure(candidates, problem)
        return known[shapes]

    def _tile_size(self, candidates: Candidates, problem: Problem, span: Span) -> int:
        """Fixed by the model and the batch; the budget only lowers it when it must."""
        known, size = self._know(candidates, problem), self.tile or MAX_TILE
        while self.tile is None and size > 1 and size * known.usual > TILE_BYTES:
            size //= 2
        own = candidates.changed_bytes(span)
        # The changed tensors are built from parts of their size before the forward pass runs.
        bytes_each = own + max(own, VMAP_COPIES * known.peak)
        while size > 1 and size * bytes_each > self.memory_budget:
            size //= 2
        return size


def find_shapes(problem: Problem) -> str:
    """The shapes of a batch, on which the memory of a forward pass depends."""
    return str([getattr(leaf, "shape", None) for leaf in tree_leaves(problem.inputs)])


def _run_tile(candidates: Candidates, problem: Problem, tile: Span) -> Tensor:
    run = partial(_run, candidates, problem, candidates.pack(tile))
    buffers = problem.buffers()
    try:
        return run(buffers, None)
    except RuntimeError as error:
        if not buffers or is_memory_error(error):
            raise
    # A forward pass that updates its buffers (BatchNorm) needs a copy per candidate.
    num = tile.end - tile.start
    own = {name: torch.stack([buffer] * num) for name, buffer in problem.buffers().items()}
    return run(own, 0)


def _run(
    candidates: Candidates,
    problem: Problem,
    packed: dict[str, Any],
    buffers: dict[str, Tensor],
    buffer_axis: int | None,
) -> Tensor:
    common = problem.parameters(candidates.base)

    def loss(packed: dict[str, Any], buffers: dict[str, Tensor]) -> Tensor:
        return problem.loss(common | candidates.unpack(packed), buffers)

    with isolate(problem.model):
        reseed(candidates.seed)
        losses: Tensor = run_vmap(
            loss, packed, buffers, in_dims=(0, buffer_axis), randomness="same"
        )
        return losses


class _Watch(DispatchMode):
    """Notes the size of a forward pass's largest result, and whether it draws random numbers."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.nbytes = 0
        self.is_random = False

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        self.is_random |= torch.Tag.nondeterministic_seeded in func.tags
        result = func(*args, **(kwargs or {}))
        tensors = [leaf for leaf in tree_leaves(result) if isinstance(leaf, Tensor)]
        self.nbytes = max([self.nbytes, *(t.numel() * t.element_size() for t in tensors)])
        return result


class _Pass(NamedTuple):
    """One candidate's forward pass."""

    usual: int  # bytes, an estimate that sets the default tile
    peak: int  # bytes alive at most, which the budget must hold
    is_random: bool


def _measure(candidates: Candidates, problem: Problem) -> _Pass:
    with isolate(problem.model), LiveBytes() as live, _Watch() as watch:
        problem.run(candidates.base, {}, candidates.seed)
    weights = sum(tensor.numel() * tensor.element_size() for tensor in candidates.base.values())
    return _Pass(int(weights + LIVE_VALUES * watch.nbytes), live.peak, watch.is_random)


def _first_sentence(error: BaseException) -> str:
    """What happened; torch goes on about issues to file."""
    first = f"{str(error).strip()}\n".splitlines()[0].partition(". ")[0]
    return f"{type(error).__name__}: {first}"[:200]
