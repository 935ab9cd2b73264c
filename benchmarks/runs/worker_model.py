"""What 10, 100 and 1,000 workers would gain: a formula, and a simulation that checks it.

    python -m benchmarks.runs.worker_model      draws docs/lab/workers.png

Tile times come from the record of `benchmarks.runs.worker_tiles`. The network is assumed, and so
are stalls: a worker in a thousand stops for ten seconds in a step.
"""

import heapq
import json
import math
import statistics
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

from benchmarks.runs import worker_tiles
from hardstep.distributed import Patience
from hardstep.distributed.engine import TILES
from hardstep.distributed.handout import AHEAD
from hardstep.evaluation.sharing import cut_evenly

PICTURE = Path(__file__).parents[2] / "docs" / "lab" / "workers.png"
WORKERS = (1, 10, 100, 1000)
DRAWN = (1, 2, 3, 5, 7, 10, 15, 20, 30, 50, 70, 100, 150, 200, 300, 500, 700, 1000)
LATENCY = 0.5e-3  # seconds, one way
BANDWIDTH = 1.25e9  # bytes a second of the driver's link: 10 Gbit/s
STALLS, STALL = 1e-3, 10.0  # the share of workers that stop in a step, and seconds
REPEATS = 40  # simulated steps at least; more of fewer workers, whose stalls are rare
LARGER = 100  # times the candidates of a policy


@dataclass(frozen=True)
class Step:
    """A step in seconds: what the driver, every worker and every tile takes."""

    driver: float
    opening: float
    tiles: dict[int, float]  # by their first candidate
    candidates: int
    nbytes: float  # of the message to every worker that gets a tile

    @property
    def total(self) -> float:
        """What one process would take."""
        return self.driver + self.opening + sum(self.tiles.values())


def read_steps() -> dict[str, list[Step]]:
    """The recorded steps by problem, and those of a larger policy, whose tiles are repeated."""
    known = json.loads(worker_tiles.RECORD.read_text())["steps"]
    found = {title: [_read(one) for one in steps] for title, steps in known.items()}
    title = list(found)[-1]
    small = found[title]
    found[f"{title}, {LARGER} times the candidates"] = [_repeat(one, small) for one in small]
    return found


def _read(note: dict[str, Any]) -> Step:
    tiles = {int(start): seconds for start, seconds in note["tiles"].items()}
    return Step(note["driver"], note["open"], tiles, note["candidates"], note["bytes"])


def _repeat(step: Step, steps: list[Step]) -> Step:
    """A step with more candidates, whose tiles take what recorded ones took."""
    tiles = {
        start + number * step.candidates: seconds
        for number in range(LARGER)
        for start, seconds in steps[number % len(steps)].tiles.items()
    }
    num = step.candidates * LARGER
    return Step(step.driver, step.opening, tiles, num, step.nbytes * LARGER)


def predict(step: Step, workers: int, stalls: float = 0.0) -> float:
    """Seconds of a step, by the formula.

    driver + 2 latency + messages / bandwidth + opening + max(rounds · mean, longest tile) + late
    """
    num, mean = len(step.tiles), statistics.fmean(step.tiles.values())
    sent = min(num, workers) * step.nbytes / BANDWIDTH
    tiles = max(math.ceil(num / workers) * mean, max(step.tiles.values()))
    busy = min(workers, num)
    again = _limit(mean * num / min(num, TILES * workers)) + step.opening + mean
    late = (1 - (1 - stalls) ** busy) * min(STALL, again)
    return step.driver + 2 * LATENCY + sent + step.opening + tiles + late


def _limit(median: float) -> float:
    """Seconds after which a tile is handed out again."""
    patience = Patience()
    return max(patience.at_least, patience.straggling * AHEAD * median)


def simulate(step: Step, workers: int, draw: Random, stalls: float = 0.0) -> float:
    """Seconds of one step: tiles go to whoever is free, the longest first."""
    work = sorted(filter(None, _cut(step, workers)), reverse=True)
    late = {w for w in range(workers) if draw.random() < stalls}
    free = [(0.0, w) for w in range(workers)]
    opened: set[int] = set()
    limit = _limit(statistics.median(work))
    end = 0.0
    for number, seconds in enumerate(work):
        sent = min(number + 1, workers) * step.nbytes / BANDWIDTH
        begin, worker = heapq.heappop(free)
        begin = max(begin, sent + LATENCY)
        first = 0.0 if worker in opened else step.opening
        opened.add(worker)
        stall = STALL if worker in late else 0.0
        late.discard(worker)
        done = begin + first + seconds + stall
        heapq.heappush(free, (done, worker))
        if stall > limit:  # handed out again, to one that is free by then
            done = min(done, begin + limit + 2 * LATENCY + step.opening + seconds)
        end = max(end, done + LATENCY)
    return step.driver + end


def _cut(step: Step, workers: int) -> Iterator[float]:
    """The seconds of every range that is handed out: of the tiles that begin in it, if any do."""
    starts = sorted(step.tiles)
    place = 0
    for _, stop in cut_evenly(step.candidates, TILES * workers):
        taken = 0.0
        while place < len(starts) and starts[place] < stop:
            taken += step.tiles[starts[place]]
            place += 1
        yield taken


def compare(steps: list[Step], workers: int, stalls: float = 0.0) -> tuple[float, float]:
    """Seconds of a step by the formula and by the simulation, on average."""
    draw, repeats = Random(workers), max(REPEATS, 4000 // workers if stalls else 0)
    found = [simulate(steps[i % len(steps)], workers, draw, stalls) for i in range(repeats)]
    predicted = statistics.fmean(predict(step, workers, stalls) for step in steps)
    return predicted, statistics.fmean(found)


def draw_picture(path: Path = PICTURE) -> None:
    """Speed against one process, over workers."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(7, 4.2), layout="constrained")
    for color, (title, steps) in enumerate(read_steps().items()):
        alone = statistics.fmean(step.total for step in steps)
        lines = [compare(steps, workers) for workers in DRAWN]
        axes.plot(DRAWN, [alone / p for p, _ in lines], color=f"C{color}", label=title)
        axes.plot(DRAWN, [alone / s for _, s in lines], "o", color=f"C{color}", markersize=4)
    axes.plot(DRAWN, DRAWN, color="0.7", linewidth=1, label="perfect")
    axes.set(xscale="log", yscale="log", xlabel="workers", ylabel="times as fast as one process")
    axes.grid(visible=True, color="0.9")
    axes.legend(frameon=False)
    figure.savefig(path, dpi=110)
    pyplot.close(figure)


if __name__ == "__main__":
    draw_picture()
    print(PICTURE)
