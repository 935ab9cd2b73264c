"""How a step will be evaluated, parameter by parameter, and what it will cost.

Counts are measured, not modeled: an evaluator runs on a tile of probes per block while every
torch operation is counted; a compiled kernel adds the operations in its program. A tile runs once
more for its time. Where tiles take long they are cut, so that the table comes within seconds.
"""

import io
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from itertools import groupby
from textwrap import fill
from typing import Any, NamedTuple

from rich.console import Console
from rich.table import Table
from torch import Tensor

from hardstep._durations import format_count, format_duration
from hardstep._torch import tree_leaves
from hardstep.evaluation.advice import advise
from hardstep.evaluation.candidates import Candidates, Span
from hardstep.evaluation.memory import DispatchMode, LiveBytes, count_operations
from hardstep.evaluation.problem import Problem
from hardstep.evaluation.sandbox import isolate
from hardstep.evaluation.trace.nodes import Record

SECONDS = 1.0  # of the processor, that the tiles of all blocks may take, each time they run
SHORT = 0.1  # seconds; a tile that takes less is timed twice
WIDTH = 80  # of reasons and advice
GLUE = "\xa0"  # between words that stay on a line; replaced when lines are made


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
        operations = count_operations(func, args, kwargs, result)
        moved = sum(tensor.numel() * tensor.element_size() for tensor in read + made)
        self.cost = self.cost.plus(Cost(operations, moved))
        return result


class TierReport(NamedTuple):
    """How candidates of one block were evaluated."""

    path: str  # the tier
    reason: str  # why not faster
    tile: int  # candidates at once
    kernel: Cost  # of one candidate, beside the torch operations
    record: Record | None = None  # that the tier was given
    start: int | None = None  # a candidate that takes what others do, if the first ones do not
    share: float = 1.0  # of what these took, that a candidate of the block takes on average


Describe = Callable[[], TierReport]
Evaluate = Callable[[Span], Describe]  # evaluates; what it returns describes how


@dataclass(frozen=True)
class ParameterCost:
    """One parameter tensor."""

    name: str
    shape: tuple[int, ...]
    block: int  # tensors that are searched together have the same
    probes: int  # of its block
    path: str
    reason: str  # why not a faster path; empty on the fastest
    advice: str  # what to write instead, if that is known
    cost: Cost  # of one probe
    seconds: float = field(compare=False)  # that its block's probes take in a step, about


@dataclass(frozen=True)
class Explanation:
    """The table that `PolyStep.explain` prints."""

    parameters: list[ParameterCost]
    forward: Cost
    memory: int  # bytes, at most, beside weights and bases
    recording: float = field(default=0.0, compare=False)  # seconds before the first probe
    workers: int = 0  # that share a step; none if it is evaluated here
    traffic: int = 0  # bytes that travel in a step for each of them, there and back
    quorum: float = 1.0  # the share of candidates that suffices when the others are late

    def divided(self, workers: int, traffic: int, quorum: float = 1.0) -> "Explanation":
        """The same step, shared by workers."""
        return replace(self, workers=workers, traffic=traffic, quorum=quorum)

    @property
    def efficiency(self) -> float:
        """The share of their time that workers would spend on probes that nobody else has."""
        shared = (self.seconds - self.recording) / max(1, self.workers)
        return self.seconds / max(1, self.workers) / max(self.recording + shared, 1e-12)

    @property
    def seconds(self) -> float:
        """What the losses of a step take, about."""
        return self.recording + sum(self._by_path().values())

    def _by_path(self) -> dict[str, float]:
        """The seconds of every tier, the slowest first."""
        blocks = {one.block: one for one in self.parameters}
        found: dict[str, float] = defaultdict(float)
        for one in blocks.values():
            found[one.path] += one.seconds
        return dict(sorted(found.items(), key=lambda pair: -pair[1]))

    def __str__(self) -> str:
        spent = self._by_path() | {"the forward pass": self.recording}
        parts = [f"{what} {format_duration(seconds)}" for what, seconds in spent.items()]
        notes = (
            "operations and bytes of a probe, compared with a full forward pass, which takes "
            f"{format_count(self.forward.operations)} operations and moves "
            f"{format_count(self.forward.nbytes)} bytes",
            f"memory of a step: {self.memory / 1e6:,.1f} MB beside weights and bases",
            f"a step takes about {format_duration(self.seconds)}, of which "
            + ", ".join(part.replace(" ", GLUE) for part in parts),
            *self._describe_sharing(),
        )
        lines = [
            *_print(self._costs(), 2 * WIDTH),
            *(fill(note, WIDTH).replace(GLUE, " ") for note in notes),
        ]
        if any(one.reason for one in self.parameters):
            lines += ["", *_print(self._reasons(), WIDTH)]
        return "\n".join(lines)

    def _describe_sharing(self) -> tuple[str, ...]:
        if not self.workers:
            return ()
        taken = self.seconds / self.workers / self.efficiency
        inexact = (
            f"inexact: a step continues with {self.quorum:.0%} of its losses when the others are "
            "late, and particles without theirs do not move",
        )
        return (
            f"{self.workers} workers share it: each runs the forward pass, then its tiles, about "
            f"{format_duration(taken)} a step without what travel takes (efficiency "
            f"{self.efficiency:.0%}); {format_count(self.traffic)} bytes travel for each",
            *(inexact if self.quorum < 1 else ()),
        )

    def _costs(self) -> Table:
        """A line per parameter; what its block has in common stands in the block's first."""
        table = Table(box=None, pad_edge=False)
        for title in ("parameter", "shape", "probes", "path", "operations", "bytes", "time"):
            table.add_column(title, justify="left" if title in ("parameter", "path") else "right")
        for _, block in groupby(self.parameters, lambda one: one.block):
            for number, one in enumerate(block):
                table.add_row(
                    one.name,
                    "×".join(map(str, one.shape)),
                    "" if number else f"{one.probes:,}",
                    one.path,
                    _share(one.cost.operations, self.forward.operations),
                    _share(one.cost.nbytes, self.forward.nbytes),
                    "" if number else format_duration(one.seconds),
                )
        return table

    def _reasons(self) -> Table:
        """A line per reason."""
        table = Table("parameter", "why not faster", "try this", box=None, pad_edge=False)
        named: dict[tuple[str, str], list[str]] = defaultdict(list)
        for one in self.parameters:
            if one.reason:
                named[one.reason, one.advice].append(one.name)
        for (reason, advice), names in named.items():
            table.add_row("\n".join(names), reason, advice)
        return table


class _Tile(NamedTuple):
    """The part of a block that is measured."""

    block: Span
    measured: Span
    full: int  # candidates that the block evaluates at once
    seconds: float  # of the whole block


def measure_step(
    candidates: Candidates, problem: Problem, begin: Callable[[], Evaluate]
) -> Explanation:
    """Path, reason and cost of every parameter, and the time and the memory of a step.

    What `begin` returns finds the losses of a span and says how.
    """
    forward = _measure_forward(candidates, problem)
    tiles = _measure(candidates, begin())
    began = time.perf_counter()
    begin()
    recording = time.perf_counter() - began
    with LiveBytes() as live:
        parameters, memory = _measure_costs(candidates, begin(), tiles, live)
    return Explanation(parameters, forward, memory, recording)


def _measure_forward(candidates: Candidates, problem: Problem) -> Cost:
    """What one plain forward pass with its loss costs."""
    with isolate(problem.model), OperationCounter() as counter:
        problem.run(candidates.base, {}, candidates.seed)
    cost: Cost = counter.cost
    return cost


def _measure(candidates: Candidates, evaluate: Evaluate) -> list[_Tile]:
    """A tile of every block, and what the block takes.

    One particle would not do: others may straddle two units and take another path. It tells how
    many particles fit into the time that there is, once it has run: the first run compiles.
    A report may name particles that take what others do.
    """
    tiles, spans = [], list(candidates.spans())
    per_particle = candidates.offsets.shape[1] * candidates.offsets.shape[2]
    for span in spans:
        first = Span(span.block, span.start, span.start + per_particle)
        report = evaluate(first)()
        whole = 1  # candidates that are measured together, or not at all
        if report.start is not None:
            first, whole = Span(span.block, report.start, report.start + per_particle), per_particle
            evaluate(first)
        full = min(span.end - first.start, max(report.tile, per_particle)) // whole * whole
        began = time.process_time()
        evaluate(first)
        each = time.process_time() - began
        fitting = int(SECONDS / len(spans) / max(each, 1e-9))
        num = min(full, max(1, fitting) * per_particle)
        tile = Span(span.block, first.start, first.start + num)
        seconds = _time(evaluate, tile) * (span.end - span.start) / num
        tiles.append(_Tile(span, tile, full, seconds))
    return tiles


def _time(evaluate: Evaluate, tile: Span) -> float:
    """Seconds of a tile; the first large one asks for memory, which a short one would show."""
    taken: list[float] = []
    while len(taken) < 2 and sum(taken) < SHORT:
        began = time.perf_counter()
        evaluate(tile)
        taken.append(time.perf_counter() - began)
    return min(taken)


def _measure_costs(
    candidates: Candidates, evaluate: Evaluate, tiles: list[_Tile], live: LiveBytes
) -> tuple[list[ParameterCost], int]:
    """What every parameter costs, and the memory of a step."""
    found, memory = [], live.peak
    for span, tile, full, seconds in tiles:
        num = tile.end - tile.start
        alone = 0
        if num < full:
            _, alone = _watch(evaluate, tile.singles([0])[0], live)
        with OperationCounter() as counter:
            describe, peak = _watch(evaluate, tile, live)
        each = max(0.0, (peak - alone) / max(1, num - 1))  # what another candidate adds
        memory = max(memory, peak + int(each * (full - num)))
        report = describe()
        cost = counter.cost.per(num).plus(report.kernel).per(1 / report.share)
        names = candidates.subspace.blocks[span.block].names
        advice = advise(report.reason, report.record, names)
        taken = seconds * report.share
        common = (span.end - span.start, report.path, report.reason, advice, cost, taken)
        for name in names:
            shape = tuple(candidates.base[name].shape)
            found.append(ParameterCost(name, shape, span.block, *common))
    return found, memory


def _watch(evaluate: Evaluate, tile: Span, live: LiveBytes) -> tuple[Describe, int]:
    """Evaluate a tile, and the memory that is alive meanwhile, at most."""
    live.peak = live.now
    describe = evaluate(tile)
    return describe, live.peak


def _print(table: Table, width: int) -> list[str]:
    text = io.StringIO()
    console = Console(file=text, width=width, markup=False, emoji=False, highlight=False)
    console.print(table)
    return [line.rstrip() for line in text.getvalue().splitlines()]


def _share(part: float, whole: float) -> str:
    return f"1/{whole / part:,.0f}" if 0 < part < 0.67 * whole else f"{part / max(whole, 1):.2g}"
