"""The parameter sets a step asks about, described by what they change.

A candidate is the current tensors with the d_p coordinates of one particle moved. Evaluators
read that structure (which block, which coordinates, how far) or simply ask for the tensors.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from hardstep.evaluation.memory import is_memory_error
from hardstep.geometry import ParticleMap
from hardstep.subspaces import BoundSubspace, LocalChange

STACK_BYTES = 128 << 20  # how much of changed tensors is built together
SHARED = 64  # tiles of a step, about, where one candidate may take long


@dataclass(frozen=True, slots=True)
class Span:
    """Consecutive candidates that change the same block of coordinates."""

    block: int
    start: int
    end: int

    @property
    def num(self) -> int:
        """How many they are."""
        return self.end - self.start

    def tiles(self, size: int) -> Iterator["Span"]:
        """This span cut into pieces of at most `size` candidates."""
        for start in range(self.start, self.end, size):
            yield Span(self.block, start, min(start + size, self.end))

    def evaluate(self, run: Callable[["Span"], Tensor], size: int) -> list[Tensor]:
        """`run`'s losses tile by tile; a tile that memory does not hold is halved."""
        return [tile.evaluate_whole(run) for tile in self.tiles(size)]

    def evaluate_whole(self, run: Callable[["Span"], Tensor]) -> Tensor:
        """`run`'s losses; in halves, if memory does not hold it."""
        try:
            return run(self)
        except (MemoryError, RuntimeError) as error:
            length = self.end - self.start
            if length == 1 or not is_memory_error(error):
                raise
        # Not inside `except`: the exception would keep the failed attempt's values alive.
        return torch.cat(self.evaluate(run, -(-length // 2)))

    def singles(self, places: Iterable[int]) -> list["Span"]:
        """The candidates at these places of this span, one by one."""
        return [Span(self.block, self.start + n, self.start + n + 1) for n in places]


@dataclass(frozen=True, eq=False)
class Candidates:
    """All probes of one step, in the order particle, vertex, probe."""

    base: Mapping[str, Tensor]
    subspace: BoundSubspace
    particles: ParticleMap
    asked: Tensor  # (A,) the particles asked about, ascending
    offsets: Tensor  # (A, V, K, d_p)
    seed: int  # of the random numbers all forward passes of this step share
    move: Tensor | None = None  # (n,) coordinates; the base is the one before, moved by it

    def __len__(self) -> int:
        return self.offsets.shape[:3].numel()

    @property
    def per_particle(self) -> int:
        """Candidates of a particle."""
        return self.offsets.shape[1] * self.offsets.shape[2]

    def spans(self) -> Iterator[Span]:
        """Runs of candidates by block."""
        return iter(self._spans)

    @cached_property
    def _spans(self) -> list[Span]:
        num_groups = torch.tensor([len(b.group_sizes) for b in self.subspace.blocks])
        block_of_group = torch.repeat_interleave(num_groups)
        blocks, counts = torch.unique_consecutive(
            block_of_group[self.particles.group[self.asked]], return_counts=True
        )
        ends = [0, *(torch.cumsum(counts, 0) * self.per_particle).tolist()]
        return [
            Span(block, *ends) for block, ends in zip(blocks.tolist(), pairwise(ends), strict=True)
        ]

    def find_block(self, block: int) -> Span:
        """All candidates of a block."""
        (found,) = (span for span in self.spans() if span.block == block)
        return found

    def tiles(self, most: int, spans: Iterable[Span] | None = None) -> Iterator[Span]:
        """Spans in pieces of at most `most` candidates, fewer where they change large tensors."""
        for span in self.spans() if spans is None else spans:
            yield from span.tiles(max(1, min(most, STACK_BYTES // self.changed_bytes(span))))

    def share_size(self, most: int) -> int:
        """Candidates of a tile, at most `most`, so that a step has enough tiles to be shared.

        It follows from the step alone, so that it is the same for whoever evaluates it.
        """
        return max(1, min(most, len(self) // SHARED))

    def changed_bytes(self, span: Span) -> int:
        """What the tensors that one candidate of a span changes take."""
        changed = [self.base[name] for name in self.subspace.blocks[span.block].names]
        return max(1, sum(tensor.numel() * tensor.element_size() for tensor in changed))

    def coordinates(self, span: Span) -> tuple[Tensor, Tensor]:
        """(index, offsets) of a span, both (n, d_p); index within the block, −1 on padding."""
        flat = torch.arange(span.start, span.end)
        index = self.particles.index[self.asked[flat // self.per_particle]]
        index = torch.where(index >= 0, index - self.subspace.starts[span.block], -1)
        offsets = self.offsets.reshape(-1, self.offsets.shape[-1])[span.start : span.end]
        return index.to(offsets.device), offsets

    def changed_rows(self, span: Span) -> Tensor | None:
        """The one weight row that each candidate changes, if a span changes no more."""
        return self.subspace.changed_rows(span.block, self.coordinates(span)[0])

    def local(self, span: Span) -> dict[str, LocalChange] | None:
        """One changed weight row per tensor and candidate, if a span changes no more."""
        index, offsets = self.coordinates(span)
        return self.subspace.local(self.base, span.block, index, offsets)

    def changed(self, span: Span) -> dict[str, Tensor]:
        """The tensors that a span changes, stacked (n, *shape)."""
        index, offsets = self.coordinates(span)
        return self.subspace.displace(self.base, span.block, index, offsets)

    def pack(self, span: Span) -> dict[str, Any]:
        """What a batched forward pass maps over, per changed tensor: tensors (n, …)."""
        return self.changed(span)

    def unpack(self, packed: dict[str, Any]) -> dict[str, Tensor]:
        """The changed tensors of one candidate, from its share of what `pack` returned."""
        return packed

    def stacked(self, span: Span) -> dict[str, Tensor]:
        """All searched tensors of a span, stacked (n, *shape); unchanged ones as views."""
        num = span.end - span.start
        plain = {name: t.detach().expand(num, *t.shape) for name, t in self.base.items()}
        return plain | self.changed(span)

    def parameters(self, number: int) -> dict[str, Tensor]:
        """All searched tensors of one candidate."""
        for span in self.spans():
            if span.start <= number < span.end:
                stacked = self.stacked(Span(span.block, number, number + 1))
                return {name: tensor[0] for name, tensor in stacked.items()}
        raise IndexError(f"candidate {number} of {len(self)}")
