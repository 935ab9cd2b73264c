"""The bundled digits: 1,797 images of 8 x 8 pixels in 0..16, ten classes.

Source: Optical Recognition of Handwritten Digits, E. Alpaydin and C. Kaynak, UCI Machine
Learning Repository (1998), doi 10.24432/C50P49, license CC BY 4.0; the test part of the original,
as scikit-learn ships it. `digits.npz` was made once, values unchanged, by

    images, labels = sklearn.datasets.load_digits(return_X_y=True)
    rng = numpy.random.default_rng(0)
    test = [rng.permutation(numpy.flatnonzero(labels == c))[: share[c]] for c in range(10)]
    test_index = numpy.sort(numpy.concatenate(test))
    numpy.savez_compressed("digits.npz", images=..., labels=..., test_index=...)

with share = 36 37 35 37 36 36 36 36 35 36, the classes' shares of 360 by largest remainder.
Pixels are standardized with one mean and one deviation over the 1,437 training images, which
therefore do not depend on the seed.
"""

import hashlib
import io
from importlib.resources import files

import numpy as np
import torch

from hardstep.data.dataset import DataSet, Split, concatenate, hold_out
from hardstep.errors import DataError

BRIGHTEST = 16.0
CHECKSUM = "539ed0fa2439e4cfb8e6a2b0e5e771ab0871c1646500ea4dbebdecd28c239569"  # SHA-256


def load_digits() -> tuple[Split, Split]:
    """The fixed train (1,437) and test (360) parts, flat pixels in 0..16.

    Raises:
        DataError: The file is missing or damaged.
    """
    arrays = np.load(io.BytesIO(_read()))
    images, labels = arrays["images"], arrays["labels"]
    is_test = np.zeros(len(labels), dtype=bool)
    is_test[arrays["test_index"]] = True
    whole = Split(torch.from_numpy(images).float(), torch.from_numpy(labels).long())
    mask = torch.from_numpy(is_test)
    return whole.select(~mask), whole.select(mask)


def _read() -> bytes:
    file = files("hardstep.data").joinpath("digits.npz")
    try:
        content = file.read_bytes()
    except OSError as error:
        raise DataError(
            f"{file} cannot be read ({error.strerror}); install hardstep again"
        ) from error
    if hashlib.sha256(content).hexdigest() != CHECKSUM:
        raise DataError(f"{file} is damaged: its SHA-256 is another; install hardstep again")
    return content


def digits(seed: int) -> DataSet:
    """Digits with 10 % of train held out by the seed: 1,294 / 143 / 360, standardized."""
    whole, test = load_digits()
    train, valid = hold_out(whole, seed)
    return _standardize("digits", whole, (train, valid, test), num_classes=10)


def digits_and_negatives(seed: int) -> DataSet:
    """Digits (labels 0-9) and their negatives 16 - x (labels 10-19), for routing between the two.

    An image and its negative are always in the same part.
    """
    whole, test = load_digits()
    train, valid = hold_out(whole, seed)
    parts = (_with_negatives(train), _with_negatives(valid), _with_negatives(test))
    return _standardize("digits-and-negatives", _with_negatives(whole), parts, num_classes=20)


def _with_negatives(split: Split) -> Split:
    return concatenate(split, Split(BRIGHTEST - split.inputs, split.labels + 10))


def _standardize(
    name: str, reference: Split, parts: tuple[Split, Split, Split], num_classes: int
) -> DataSet:
    """The parts on the scale where the pixels of `reference` have mean 0 and deviation 1."""
    deviation, mean = torch.std_mean(reference.inputs, correction=0)
    train, valid, test = (Split((p.inputs - mean) / deviation, p.labels) for p in parts)
    return DataSet(name, train, valid, test, num_classes)
