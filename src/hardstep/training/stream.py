"""Batches in an order that depends on the seed and the epoch only.

Any iterable of batches will do. While it produces a batch it sees torch random numbers
derived from (seed, epoch), so a shuffling `DataLoader` gives the same order after a restart,
and the caller's generators are left alone. A loader with a generator of its own has it
reseeded each epoch from the seed it came with. Randomness from elsewhere (numpy, `random`)
is not controlled: batches drawn with it are not the same after a resume.
"""

from collections.abc import Iterable, Iterator
from typing import Any

import torch

from hardstep import seeds
from hardstep.errors import DataError


class Stream:
    """Epochs of an iterable, each reproducible on its own."""

    def __init__(self, batches: Iterable[Any], seed: int) -> None:
        self.batches = batches
        self.seed = seed
        own = getattr(batches, "generator", None)
        self._own = own if isinstance(own, torch.Generator) else None
        self._own_seed = own.initial_seed() if isinstance(own, torch.Generator) else 0

    def epoch(self, epoch: int, skip: int = 0) -> Iterator[Any]:
        """The batches of an epoch after the first `skip`.

        Raises:
            DataError: The iterable is empty or used up.
        """
        for holder in (self.batches, getattr(self.batches, "sampler", None)):
            set_epoch = getattr(holder, "set_epoch", None)
            if set_epoch is not None:
                set_epoch(epoch)
        if self._own is not None:
            self._own.manual_seed(seeds.derive(self.seed, "loader", self._own_seed, epoch))
        state = seeds.generator(self.seed, "data", epoch).get_state()
        count = 0
        for batch in _under(state, self.batches):
            count += 1
            if count > skip:
                yield batch
        if count == 0:
            raise DataError(
                f"train gave no batch in epoch {epoch}: pass a list, a DataLoader or another "
                "object that can be iterated anew each epoch, not a generator"
            )


def _under(state: torch.Tensor, batches: Iterable[Any]) -> Iterator[Any]:
    """Iterate with the torch generator in `state`, which moves along from batch to batch."""
    iterator: Iterator[Any] | None = None
    while True:
        with torch.random.fork_rng(devices=[]):
            torch.set_rng_state(state)
            iterator = iter(batches) if iterator is None else iterator
            try:
                batch = next(iterator)
            except StopIteration:
                return
            state = torch.get_rng_state()
        yield batch


def split_batch(batch: Any) -> tuple[Any, Any]:
    """(inputs, target) of a batch: a pair, or inputs alone."""
    if isinstance(batch, tuple | list) and len(batch) == 2:
        return batch[0], batch[1]
    return batch, None
