"""MNIST, Fashion-MNIST and the two together, flat and standardised: (x / 255 - mean) / std.

    MNIST           mean 0.1307, std 0.3081
    Fashion-MNIST   mean 0.2860, std 0.3530

60,000 training images, 10 % of them held out by the run seed, and 10,000 test images each.
"""

from dataclasses import dataclass

import torch

from hardstep.data.archives import Archive, locate
from hardstep.data.base import DataSet, Split, concatenate, hold_out
from hardstep.data.idx import read_idx


@dataclass(frozen=True)
class _Images:
    """Where the images of one data set are and the scale they are put on."""

    archive: Archive
    mean: float
    std: float


_MNIST = _Images(
    Archive(
        name="mnist",
        mirror="https://ossci-datasets.s3.amazonaws.com/mnist",
        checksums={
            "train-images-idx3-ubyte.gz": (
                "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609"
            ),
            "train-labels-idx1-ubyte.gz": (
                "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c"
            ),
            "t10k-images-idx3-ubyte.gz": (
                "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6"
            ),
            "t10k-labels-idx1-ubyte.gz": (
                "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6"
            ),
        },
    ),
    mean=0.1307,
    std=0.3081,
)

_FASHION = _Images(
    Archive(
        name="fashion-mnist",
        mirror=(
            "https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion"
        ),
        checksums={
            "train-images-idx3-ubyte.gz": (
                "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84"
            ),
            "train-labels-idx1-ubyte.gz": (
                "a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845"
            ),
            "t10k-images-idx3-ubyte.gz": (
                "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073"
            ),
            "t10k-labels-idx1-ubyte.gz": (
                "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5"
            ),
        },
    ),
    mean=0.2860,
    std=0.3530,
)


def mnist(seed: int) -> DataSet:
    """Handwritten digits, ten classes, inputs (N, 784)."""
    return _assemble("mnist", *_read(_MNIST), seed, num_classes=10)


def fashion_mnist(seed: int) -> DataSet:
    """Articles of clothing, ten classes, inputs (N, 784)."""
    return _assemble("fashion-mnist", *_read(_FASHION), seed, num_classes=10)


def mnist_and_fashion(seed: int) -> DataSet:
    """Digits (labels 0-9) and clothing (labels 10-19), for routing between the two."""
    train, test = _read(_MNIST)
    more_train, more_test = _read(_FASHION, first_label=10)
    return _assemble(
        "mnist-and-fashion",
        concatenate(train, more_train),
        concatenate(test, more_test),
        seed,
        num_classes=20,
    )


def _read(images: _Images, first_label: int = 0) -> tuple[Split, Split]:
    """The standardised train and test parts."""
    folder = locate(images.archive)
    parts = []
    for part in ("train", "t10k"):
        pixels = read_idx(folder / f"{part}-images-idx3-ubyte.gz", num_dims=3)
        labels = read_idx(folder / f"{part}-labels-idx1-ubyte.gz", num_dims=1)
        # In place on the fresh float copy: a part takes 188 MB.
        inputs = pixels.flatten(start_dim=1).to(torch.float32)
        inputs.div_(255.0).sub_(images.mean).div_(images.std)
        parts.append(Split(inputs, labels.to(torch.long) + first_label))
    train, test = parts
    return train, test


def _assemble(name: str, train: Split, test: Split, seed: int, num_classes: int) -> DataSet:
    train, valid = hold_out(train, seed)
    return DataSet(name, train, valid, test, num_classes)
