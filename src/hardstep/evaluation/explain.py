"""How a step will be evaluated, parameter by parameter, and what it will cost.

Counts are measured, not modeled: an evaluator runs on a tile of probes per block while every
torch operation is counted; a compiled kernel adds the operations in its program.
"""

import io
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from rich.console import Console
from rich.table import Table
from torch import Tensor
from torch.utils.flop_counter import flop_registry

from hardstep._torch import tree_leaves
from hardstep.evaluation.candidates import Candidates, Span
from hardstep.evaluation.memory import DispatchMode, LiveBytes
from hardstep.evaluation.objectives import Problem
from hardstep.evaluation.sandbox import isolate


class Cost(NamedTuple):
    """Arithmetic and memory traffic of something."""

    operations: float = 0.0
    nbytes: float = 0.0

    def per(self, num: int) -> "Cost":
        """A share of it."""
        return Cost(self.operations / num, self.nbytes / num)

    def plus(self, other: "Cost") -> "Cost":
        """Both."""
        return Cost(self.operations + other.operations, self.nbytes + other.nbytes)


class OperationCounter(DispatchMode):
    """Counts torch operations: products by their multiply-adds, others by their results."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.cost = Cost()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        made = [leaf for leaf in tree_leaves(result) if isinstance(leaf, Tensor)]
        if func.is_view or not made:
            return result
        read = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
        formula = flop_registry.get(func.overloadpacket)
        if formula is None:
            operations = max(tensor.numel() for tensor in made)
        else:
            operations = formula(*args, **kwargs, out_val=result)
        moved = sum(tensor.numel() * tensor.element_size() for tensor in read + made)
        self.cost = self.cost.plus(Cost(operations, moved))
        return result


class TierReport(NamedTuple):
    """How candidates of one block were evaluated."""

    path: str
    reason: str  # why not faster
    tile: int  # candidates at once
    kernel: Cost  # of one candidate, beside the torch operations


@dataclass(frozen=True)
class ParameterCost:
    """One parameter tensor."""

    name: str
    shape: tuple[int, ...]
    probes: int  # of its block
    path: str
    reason: str  # why not a faster path; empty on the fastest
    cost: Cost  # of one probe


@dataclass(frozen=True)
class Explanation:
    """The table that `PolyStep.explain` prints."""

    parameters: list[ParameterCost]
    forward: Cost
    memory: int  # bytes, at most, beside weights and bases

    def __str__(self) -> str:
        table = Table(box=None, header_style="bold", pad_edge=False)
        for title in ("parameter", "shape", "probes", "path", "operations", "of a forward"):
            table.add_column(title, justify="left" if title in ("parameter", "path") else "right")
        table.add_column("bytes", justify="right")
        table.add_column("of a forward", justify="right")
        table.add_column("why not faster")
        for one in self.parameters:
            table.add_row(
                one.name,
                "×".join(map(str, one.shape)),
                f"{one.probes:,}",
                one.path,
                _short(one.cost.operations),
                _share(one.cost.operations, self.forward.operations),
                _short(one.cost.nbytes),
                _share(one.cost.nbytes, self.forward.nbytes),
                one.reason,
            )
        text = io.StringIO()
        Console(file=text, width=160).print(table)
        lines = [line.rstrip() for line in text.getvalue().splitlines()]
        lines.append(
            f"per probe; a full forward pass takes {_short(self.forward.operations)} operations "
            f"and moves {_short(self.forward.nbytes)} bytes"
        )
        lines.append(f"memory of a step: {self.memory / 1e6:,.1f} MB beside weights and bases")
        return "\n".join(lines)


def measure_step(
    candidates: Candidates, problem: Problem, begin: Callable[[], Callable[[Span], TierReport]]
) -> Explanation:
    """Path, reason and cost of every parameter, and the memory of a step.

    What `begin` returns finds the losses of a span and says how.
    """
    forward = _measure_forward(candidates, problem)
    with LiveBytes() as live:
        parameters = _measure_parameters(candidates, begin())
    return Explanation(parameters, forward, live.peak)


def _measure_forward(candidates: Candidates, problem: Problem) -> Cost:
    """What one plain forward pass with its loss costs."""
    with isolate(problem.model), OperationCounter() as counter:
        problem.run(candidates.base, {}, candidates.seed)
    cost: Cost = counter.cost
    return cost


def _measure_parameters(
    candidates: Candidates, evaluate: Callable[[Span], TierReport]
) -> list[ParameterCost]:
    """What every parameter costs.

    A full tile of every block is evaluated, so that the memory of a step can be watched, and then
    counted. One particle would not do: others may straddle two units and take another path.
    """
    found = []
    per_particle = candidates.offsets.shape[1] * candidates.offsets.shape[2]
    for span in candidates.spans():
        size = evaluate(Span(span.block, span.start, span.start + per_particle)).tile
        tile = Span(span.block, span.start, min(span.end, span.start + max(size, per_particle)))
        evaluate(tile)
        with OperationCounter() as counter:
            report = evaluate(tile)
        cost = counter.cost.per(tile.end - tile.start).plus(report.kernel)
        for name in candidates.subspace.blocks[span.block].names:
            shape = tuple(candidates.base[name].shape)
            num = span.end - span.start
            found.append(ParameterCost(name, shape, num, report.path, report.reason, cost))
    return found


def _short(number: float) -> str:
    for unit, size in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if number >= size:
            return f"{number / size:.3g} {unit}"
    return f"{number:.3g}"


def _share(part: float, whole: float) -> str:
    return f"1/{whole / part:,.0f}" if 0 < part < 0.67 * whole else f"{part / max(whole, 1):.2g}"
