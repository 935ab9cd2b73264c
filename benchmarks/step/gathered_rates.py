"""What gathering and whole forward passes take per candidate, beside what the evaluator estimates.

    python -m benchmarks.step.gathered_rates [name ...]    some networks; all by default

Networks of tokens from tiny to ordinary: attention by softmax and argmax, torch's encoder layers,
layers on every token, rows of tables. One thread, processor time, the best of a few runs.
"""

import sys
import time
from collections.abc import Callable, Iterator
from typing import NamedTuple
from unittest.mock import patch

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks.step import token_networks
from hardstep import PolyStep
from hardstep.evaluation import Batched, Incremental, Problem, gathered_tier, gathered_worth
from hardstep.evaluation.blocks import Fused, Step
from hardstep.evaluation.candidates import Span
from hardstep.evaluation.gathered import Gathering
from hardstep.evaluation.gathered_tier import Gathered
from hardstep.evaluation.tiling import Tiling
from hardstep.subspaces import RowWise

BUDGET, CLASSES, SECONDS, RUNS = 1 << 30, 10, 0.05, 2


class Encoder(nn.Module):
    """torch's encoder layer over words or numbers; the mean of the tokens is classified."""

    def __init__(self, width: int, heads: int, words: int, depth: int) -> None:
        super().__init__()
        self.embed = nn.Embedding(words, width) if words else nn.Linear(token_networks.ROWS, width)
        layers = [
            nn.TransformerEncoderLayer(width, heads, 2 * width, 0.0, batch_first=True)
            for _ in range(depth)
        ]
        self.layers, self.readout = nn.Sequential(*layers), nn.Linear(width, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        """Scores (batch, classes)."""
        return self.readout(self.layers(self.embed(x)).mean(dim=1))  # type: ignore[no-any-return]


class Tokens(nn.Module):
    """Layers on every token, which change all that follows."""

    def __init__(self, width: int, depth: int) -> None:
        super().__init__()
        sizes = [token_networks.ROWS, *[width] * depth]
        layers = [
            nn.Sequential(nn.Linear(a, b), nn.LayerNorm(b), nn.Tanh())
            for a, b in zip(sizes, sizes[1:], strict=False)
        ]
        self.layers, self.readout = nn.Sequential(*layers), nn.Linear(width, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        """Scores (batch, classes)."""
        return self.readout(self.layers(x).mean(dim=1))  # type: ignore[no-any-return]


class Case(NamedTuple):
    """A network and its batch."""

    build: Callable[[], nn.Module]
    batch: int
    tokens: int = token_networks.ROWS
    words: int = 0


def list_cases() -> dict[str, Case]:
    """All of them."""
    found = {}
    for width in (4, 16, 64):
        for kind, hard in (("softmax", False), ("argmax", True)):
            for batch in (4, 64):
                found[f"{kind}-{width}-{batch}"] = Case(
                    lambda w=width, h=hard: token_networks.Attention(h, w), batch
                )
    for width, words, depth in ((16, 0, 1), (32, 0, 2), (32, 200, 1), (64, 1000, 1)):
        found[f"encoder-{width}-{words}-{depth}"] = Case(
            lambda w=width, n=words, d=depth: Encoder(w, 2, n, d), 32, 16, words
        )
    for width, depth, batch in ((4, 1, 64), (8, 4, 16), (64, 2, 64), (128, 4, 16)):
        found[f"tokens-{width}-{depth}"] = Case(lambda w=width, d=depth: Tokens(w, d), batch, 8)
    return found


class Block(NamedTuple):
    """Nanoseconds of a candidate of one block: measured, and estimated."""

    name: str
    gathered: float
    batched: float
    estimates: tuple[float, float]


def measure(name: str, case: Case) -> Iterator[Block]:
    """The blocks of a network that could be gathered."""
    torch.manual_seed(0)
    model = case.build()
    shape = (case.batch, case.tokens)
    x = torch.randint(case.words, shape) if case.words else torch.rand(*shape, token_networks.ROWS)
    opt = PolyStep(model, subspace=RowWise(rank=1), seed=0)
    candidates = opt.candidates(opt.propose())
    problem = Problem(model, x, torch.arange(case.batch) % CLASSES, F.cross_entropy)
    step, plain = Incremental()._begin(candidates, problem), Batched()
    assert isinstance(step, Step)
    for span in candidates.spans():
        if isinstance(Fused(BUDGET).plan(step, span), Tiling):
            continue
        seen: list[tuple[float, float]] = []
        with patch.object(gathered_tier, "check_worth", lambda *a, s=seen: s.append(_look(*a))):
            tiling = Gathered(BUDGET).plan(step, span)
        if not isinstance(tiling, Tiling) or not seen:
            continue
        tiles = tiling.cut()[:3]
        few = Span(span.block, span.start, min(span.end, span.start + gathered_worth.PLAIN_TILE))
        gathered = _time(lambda t=tiling, own=tiles: t.run(own)) / sum(t.num for t in tiles)
        batched = _time(lambda own=few: plain.losses(candidates, problem, [own])) / few.num
        yield Block(f"{name} {step.names(span)[0]}", gathered, batched, seen[0])


def _look(step: Step, gathering: Gathering, span: Span, share: float = 1.0) -> tuple[float, float]:
    own = gathered_worth.estimate_gathered(step, gathering, span, span.num, share)
    return own, gathered_worth.estimate_plain(step, gathering, span, span.num)


def _time(run: Callable[[], object]) -> float:
    """Nanoseconds of the processor."""
    run()
    taken: list[float] = []
    while len(taken) < RUNS or sum(taken) < SECONDS:
        began = time.process_time()
        run()
        taken.append(time.process_time() - began)
    return 1e9 * min(taken)


def main() -> None:
    """Measure and print."""
    torch.set_num_threads(1)
    cases = list_cases()
    names = sys.argv[1:] or list(cases)
    with torch.no_grad():
        for name in names:
            for block in measure(name, cases[name]):
                own, whole = (value / 1e3 for value in block.estimates)
                print(
                    f"{block.name:45} gathered {block.gathered / 1e3:7.0f} µs (estimated {own:.0f})"
                    f", batched {block.batched / 1e3:7.0f} ({whole:.0f}), ratio "
                    f"{block.gathered / block.batched:.2f} ({own / whole:.2f})",
                    flush=True,
                )


if __name__ == "__main__":
    main()
