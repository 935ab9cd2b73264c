"""How a block is cut into tiles, and who evaluates them: what is common to tiers."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from hardstep._threads import share_out
from hardstep.evaluation.candidates import Span


@dataclass(frozen=True)
class Tiling:
    """How a tier evaluates a block: where it cuts, and what it does with some of the tiles.

    Args:
        span: The whole block.
        cut: Its tiles. What is in one is evaluated together, and rounds as it does in this company.
        run: The losses of tiles, one after the other, or of the whole block.
    """

    span: Span
    cut: Callable[[], list[Span]]
    run: Callable[[list[Span]], Tensor]

    def tiles(self, start: int, stop: int) -> list[Span]:
        """Those that begin among these candidates; the whole block, if it lies among them."""
        if start <= self.span.start and self.span.end <= stop:
            return [self.span]
        return [tile for tile in self.cut() if start <= tile.start < stop]


def tile_evenly(span: Span, size: int, run: Callable[[Span], Tensor]) -> Tiling:
    """Tiles of one size, the last as it comes."""

    def run_all(tiles: list[Span]) -> Tensor:
        return torch.cat([piece for tile in tiles for piece in tile.evaluate(run, size)])

    return Tiling(span, lambda: list(span.tiles(size)), run_all)


def tile_among_threads(span: Span, size: int, run: Callable[[Span], Tensor]) -> Tiling:
    """Tiles of one size, each evaluated by one thread; by all of them what is left at the end."""

    def run_all(tiles: list[Span]) -> Tensor:
        pieces = [piece for tile in tiles for piece in tile.tiles(size)]
        losses = [torch.empty(0)] * len(pieces)
        rounds = len(pieces) // torch.get_num_threads() * torch.get_num_threads()

        def run_some(first: int, last: int) -> None:
            with torch.no_grad():  # threads have a setting of their own
                for number in range(first, last):
                    losses[number] = pieces[number].evaluate_whole(run)

        share_out(rounds, run_some, largest_piece=1)
        run_some(rounds, len(pieces))
        return torch.cat(losses)

    return Tiling(span, lambda: list(span.tiles(size)), run_all)


def even_out(span: Span, size: int, unit: int) -> int:
    """A size of whole units with which no tile is much smaller than the others.

    A small one would be done early, and its thread, or its worker, would wait.
    """
    num = span.end - span.start
    return -(-num // (-(-num // size) * unit)) * unit
