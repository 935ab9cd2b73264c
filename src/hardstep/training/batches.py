"""Batches in an order that depends on the seed and the epoch only, checked as they come.

Any iterable of batches will do. While it produces a batch it sees torch random numbers
derived from (seed, epoch), so a shuffling `DataLoader` gives the same order after a restart,
and the caller's generators are left alone. A loader that has a generator gets it
reseeded each epoch from the seed it came with, and back as it was. Randomness from
elsewhere (numpy, `random`) is not controlled: batches drawn with it are not the same after a
resume.
"""

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sized
from contextlib import contextmanager, suppress
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from hardstep import seeds
from hardstep.errors import ConfigError, DataError

WAYS = "pass hardstep.data.Batches(split, 128, seed=0), a DataLoader, or a list such as [(x, y)]"


class Stream:
    """Epochs of an iterable, each reproducible on its own."""

    def __init__(self, batches: Iterable[Any], seed: int) -> None:
        self.batches = batches
        self.seed = seed
        own = getattr(batches, "generator", None)
        self._own = own if isinstance(own, torch.Generator) else None
        self._own_seed = own.initial_seed() if isinstance(own, torch.Generator) else 0

    def identity(self) -> dict[str, Any]:
        """What tells these batches from others, as far as they say; saved with a run."""
        known: dict[str, Any] = {
            name: int(value)
            for name in ("batch_size", "seed", "shuffle")
            if isinstance(value := getattr(self.batches, name, None), int)
        }
        if self._own is not None:
            known["generator seed"] = self._own_seed
        num = num_batches(self.batches)
        return known if num is None else known | {"number of batches": num}

    def epoch(self, epoch: int, skip: int = 0) -> Iterator[Any]:
        """The batches of an epoch after the first `skip`.

        Raises:
            DataError: The iterable is empty or used up.
        """
        for holder in (self.batches, getattr(self.batches, "sampler", None)):
            set_epoch = getattr(holder, "set_epoch", None)
            if set_epoch is not None:
                set_epoch(epoch)
        with self._reseed(epoch):
            yield from self._after(skip, epoch)

    @contextmanager
    def _reseed(self, epoch: int) -> Iterator[None]:
        """The loader's own generator, if it has one, as this epoch needs it; then as found."""
        if self._own is None:
            yield
            return
        found = self._own.get_state()
        self._own.manual_seed(seeds.derive(self.seed, "loader", self._own_seed, epoch))
        try:
            yield
        finally:
            self._own.set_state(found)

    def _after(self, skip: int, epoch: int) -> Iterator[Any]:
        state = seeds.generator(self.seed, "data", epoch).get_state()
        count = 0
        for batch in _iterate(state, self.batches):
            count += 1
            if count > skip:
                yield batch
        if count == 0:
            raise DataError(
                f"train gave no batch in epoch {epoch}: pass a list, a DataLoader or another "
                "object that can be iterated again each epoch, not a generator"
            )


def _iterate(state: Tensor, batches: Iterable[Any]) -> Iterator[Any]:
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


def num_batches(batches: object) -> int | None:
    """Batches of an epoch, if they have a number."""
    if isinstance(batches, Sized):
        with suppress(TypeError):  # a DataLoader of an iterable dataset has a len that raises
            return len(batches)
    return None


def split_batch(batch: Any) -> tuple[Any, Any]:
    """(inputs, target) of a batch: a pair, or inputs alone."""
    if isinstance(batch, tuple | list) and len(batch) == 2:
        return batch[0], batch[1]
    return batch, None


def check_batches(name: str, batches: object) -> None:
    """Refuse what does not iterate over batches.

    Raises:
        ConfigError: It is a tensor, a pair of them, a data set, a dict, …
        DataError: It is empty.
    """
    pair = isinstance(batches, tuple) and len(batches) == 2 and all(map(_is_array, batches))
    iterable = hasattr(batches, "__iter__") or hasattr(batches, "__getitem__")
    wrong = isinstance(batches, str | Mapping | type) or _is_array(batches)
    if pair or wrong or not iterable:
        seen = "a pair of tensors" if pair else f"a {type(batches).__name__}"
        raise ConfigError(f"fit: {name} must be batches (inputs, target), got {seen}; {WAYS}")
    if num_batches(batches) == 0:
        raise DataError(f"fit: {name} has no batch; {WAYS}")


def check_target(batch: Any, target: Any, function: Callable[..., Any]) -> None:
    """Refuse a batch without a target for a function that cannot do without.

    Raises:
        DataError: As above.
    """
    if target is not None:
        return
    forward = function.forward if isinstance(function, nn.Module) else function
    try:
        inspect.signature(forward).bind(None)
    except TypeError as error:
        raise DataError(
            f"a batch must be a pair (inputs, target), got {_describe(batch)}, which leaves "
            f"{getattr(forward, '__qualname__', repr(forward))} without a target"
        ) from error
    except ValueError:  # a function that has no signature to look at
        return


def check_tensors(inputs: Any, target: Any, error: TypeError) -> None:
    """Say it if arrays may be why a step failed; a model that takes arrays is no failure."""
    parts = [target, *(inputs if isinstance(inputs, tuple | list) else [inputs])]
    if any(isinstance(part, np.ndarray) for part in parts):
        raise DataError(
            f"a batch of numpy arrays did not suit the model or the loss ({error}); make tensors "
            "of them, for instance with torch.from_numpy"
        ) from error


def _is_array(value: object) -> bool:
    return isinstance(value, Tensor | np.ndarray)


def _describe(batch: Any) -> str:
    if isinstance(batch, Mapping):
        return f"a dict of {', '.join(map(str, batch))}"
    if isinstance(batch, tuple | list):
        return f"a {type(batch).__name__} of {len(batch)}"
    return f"a {type(batch).__name__}"
