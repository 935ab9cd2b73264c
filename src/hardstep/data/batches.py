"""Minibatches whose order is a function of (seed, epoch) and of nothing else.

Epoch e visits the examples in the order of a permutation drawn for (seed, e) alone, cut into
batches of `batch_size`; the last, partial batch is kept. So batch i of epoch e can be had
directly, which is how an interrupted run resumes in the middle of an epoch.

Where examples have sizes, those of every few dozen batches are sorted by size before they are cut,
and the batches shuffled.
"""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from hardstep._checks import check_count
from hardstep.data.dataset import DataSet, Split
from hardstep.errors import ConfigError
from hardstep.evaluation.origins import note_origin
from hardstep.seeds import check_seed, generator

SORTED = 64  # batches whose examples are sorted by size together


def _refuse(given: object) -> str:
    way_out = ""
    if isinstance(given, DataSet):
        way_out = "; give its part .train or .valid"
    elif isinstance(given, tuple | list) and len(given) == 2:
        way_out = "; write hardstep.data.Split(inputs, labels)"
    kind = type(given).__name__
    return f"Batches: split must be a Split such as digits(0).train, got a {kind}{way_out}"


class Batches:
    """Iterates over one epoch of a split; prefer it to a `DataLoader` for data held in memory.

    Iterating twice without `set_epoch` in between gives the same batches twice.
    """

    def __init__(self, split: Split, batch_size: int, seed: int, shuffle: bool = True) -> None:
        if not isinstance(split, Split):
            raise ConfigError(_refuse(split))
        check_count("Batches: batch_size", batch_size)
        check_seed(seed)
        if len(split) == 0:
            raise ConfigError("Batches: the split has no examples")
        self.split = split
        self.batch_size = batch_size
        self.seed = seed
        self.shuffle = shuffle
        self.epoch = 0
        self._last: tuple[Split, Any, Tensor] | None = None  # an order, and of what it is

    def set_epoch(self, epoch: int) -> None:
        """Choose the epoch that iteration goes through."""
        self.epoch = epoch

    def batch(self, epoch: int, index: int) -> tuple[Tensor, Tensor]:
        """Inputs and labels of one batch, as iteration over that epoch would give them.

        Raises:
            ConfigError: when the epoch has no such batch.
        """
        if not 0 <= index < len(self):
            raise ConfigError(f"Batches: index must lie in 0..{len(self) - 1}, got {index}")
        return self._cut(self._order(epoch), index)

    def __len__(self) -> int:
        return -(-len(self.split) // self.batch_size)

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        order = self._order(self.epoch)
        for index in range(len(self)):
            yield self._cut(order, index)

    def _order(self, epoch: int) -> Tensor:
        """The examples of an epoch; the next batch is mostly of the same one."""
        key = epoch, self.seed, self.shuffle, self.batch_size
        last = self._last
        if last is None or last[0] is not self.split or last[1] != key:
            last = self._last = self.split, key, self._draw_order(epoch)
        return last[2]

    def _draw_order(self, epoch: int) -> Tensor:
        if not self.shuffle:
            return torch.arange(len(self.split))
        order = torch.randperm(len(self.split), generator=generator(self.seed, "batches", epoch))
        return order if self.split.sizes is None else self._put_alike_together(order, epoch)

    def _put_alike_together(self, order: Tensor, epoch: int) -> Tensor:
        """The same examples, those of a batch of about equal size; the partial batch stays last."""
        assert self.split.sizes is not None
        sizes = self.split.sizes[order]
        pieces = zip(*(torch.split(part, self._sorted) for part in (order, sizes)), strict=True)
        order = torch.cat([piece[size.argsort(stable=True)] for piece, size in pieces])
        whole = len(order) // self.batch_size
        draws = generator(self.seed, "order of batches", epoch)
        batches = order[: whole * self.batch_size].reshape(whole, self.batch_size)
        shuffled = batches[torch.randperm(whole, generator=draws)]
        return torch.cat([shuffled.flatten(), order[whole * self.batch_size :]])

    @property
    def _sorted(self) -> int:
        """Examples that are sorted together."""
        return SORTED * self.batch_size

    def _cut(self, order: Tensor, index: int) -> tuple[Tensor, Tensor]:
        start = index * self.batch_size
        rows = order[start : start + self.batch_size]
        # A quarter of the time of indexing, which looks for negative numbers, too.
        inputs, labels = (
            whole.index_select(0, rows) for whole in (self.split.inputs, self.split.labels)
        )
        note_origin(inputs, self.split.inputs, rows)
        note_origin(labels, self.split.labels, rows)
        return inputs, labels
