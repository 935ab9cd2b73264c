"""What a data set is: three splits, the last of them under guard.

The test part is for one number at the very end. `DataSet.open_test` hands it out once and refuses
ever after, and refuses while the set is `sealed`, as it is during training and choosing, so that a
loop, a sweep or a second look cannot tune on it by accident.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor

from hardstep.errors import ConfigError, DataError
from hardstep.seeds import generator


@dataclass(frozen=True, eq=False)
class Split:
    """Examples that are used together.

    Args:
        inputs: (N, ...), floating point; torch.long where they are indices, such as words.
        labels: torch.long (N,) for classes, floating point (N, ...) for numbers to predict.
        sizes: (N,) how long each example is without its padding; `Batches` then puts examples of
            about equal size together, so that little of a batch is padding.
    """

    inputs: Tensor
    labels: Tensor
    sizes: Tensor | None = None

    def __post_init__(self) -> None:
        if len(self.inputs) != len(self.labels):
            raise DataError(f"Split: {len(self.inputs)} inputs but {len(self.labels)} labels")
        if self.sizes is not None and self.sizes.shape != (len(self.inputs),):
            raise DataError(
                f"Split: {len(self.inputs)} inputs but sizes of shape {tuple(self.sizes.shape)}"
            )
        if not _is_usable(self.inputs):
            raise DataError(
                "Split: inputs must be floating point, or torch.long for indices, got "
                f"{self.inputs.dtype}; make pictures of bytes so with .float() / 255, arrays with "
                ".astype('float32') / 255"
            )
        if not _is_usable(self.labels):
            raise DataError(
                "Split: labels must be torch.long for classes, or floating point for numbers, got "
                f"{self.labels.dtype}"
            )

    def __len__(self) -> int:
        return len(self.labels)

    def select(self, index: Tensor) -> "Split":
        """The examples at these positions, in that order."""
        sizes = None if self.sizes is None else self.sizes[index]
        return Split(self.inputs[index], self.labels[index], sizes)


def _is_usable(values: Tensor) -> bool:
    return values.is_floating_point() or values.dtype == torch.long


class DataSet:
    """Train and validation parts to use freely, and a test part to open once.

    Args:
        name: What it is called.
        train: To learn from.
        valid: To choose by.
        test: Handed out once.
        num_classes: How many classes; None where labels are numbers.
    """

    def __init__(
        self, name: str, train: Split, valid: Split, test: Split, num_classes: int | None = None
    ) -> None:
        self.name = name
        self.train = train
        self.valid = valid
        self.num_classes = num_classes
        self._test = test
        self._sealed = False
        self._reads = 0

    @property
    def test_reads(self) -> int:
        """How often the test part has been handed out."""
        return self._reads

    @contextmanager
    def seal(self) -> Iterator[None]:
        """While this lasts nobody gets the test part.

        Raises:
            DataError: it was handed out before, so what comes now could have been tuned on it.
        """
        if self._reads:
            raise DataError(
                f"DataSet {self.name}: the test part was opened before training began; open it "
                "after, or make a new data set for every run"
            )
        self._sealed = True
        try:
            yield
        finally:
            self._sealed = False

    def open_test(self) -> Split:
        """The test part, the first time.

        Raises:
            DataError: when it was opened before, or is sealed.
        """
        if self._sealed:
            raise DataError(
                f"DataSet {self.name}: the test part is sealed until training and choosing are "
                "over; use `valid`"
            )
        if self._reads:
            raise DataError(
                f"DataSet {self.name}: the test part was opened before and is touched once; "
                "keep the first result, or choose between models on `valid`"
            )
        self._reads += 1
        return self._test

    def __repr__(self) -> str:
        classes = "" if self.num_classes is None else f", {self.num_classes} classes"
        return (
            f"DataSet({self.name}: {len(self.train)} train, {len(self.valid)} valid, "
            f"{len(self._test)} test{classes})"
        )


def concatenate(first: Split, second: Split) -> Split:
    """The examples of both, the first ones first."""
    return Split(torch.cat([first.inputs, second.inputs]), torch.cat([first.labels, second.labels]))


def hold_out(split: Split, seed: int, fraction: float = 0.1) -> tuple[Split, Split]:
    """What is left and the held-out fraction (rounded down), chosen by the seed only.

    Raises:
        ConfigError: when either part would be empty.
    """
    count = int(fraction * len(split))
    if not 0 < count < len(split):
        raise ConfigError(
            f"hold_out: fraction {fraction} of {len(split)} examples leaves one part empty"
        )
    order = torch.randperm(len(split), generator=generator(seed, "validation"))
    return split.select(order[count:]), split.select(order[:count])
