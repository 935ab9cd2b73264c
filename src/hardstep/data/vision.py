"""MNIST, Fashion-MNIST and the two together, flat and standardized: (x / 255 - mean) / std.

    MNIST           mean 0.1307, std 0.3081
    Fashion-MNIST   mean 0.2860, std 0.3530

60,000 training images, 10 % of them held out by the run seed, and 10,000 test images each. They
are gzipped IDX files of bytes:

    0 0 8 n                     magic: two zeros, type 8 (unsigned byte), number of dimensions
    n big-endian 32-bit sizes
    the values, last dimension fastest
"""

import gzip
import math
import struct
import zlib
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from hardstep.data.archives import Archive, locate
from hardstep.data.dataset import DataSet, Split, concatenate, hold_out
from hardstep.errors import DataError

_UNSIGNED_BYTE = 8


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
    """The standardized train and test parts."""
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


def read_idx(path: Path, num_dims: int) -> Tensor:
    """The array of the file, uint8, with this many dimensions.

    Raises:
        DataError: when the file is missing, not gzip, not such an array, or of the wrong length.
    """
    content = _unzip(path)
    magic, start = bytes([0, 0, _UNSIGNED_BYTE, num_dims]), 4 + 4 * num_dims
    if content[:4] != magic:
        raise DataError(
            f"{path}: not an IDX file of bytes in {num_dims} dimensions, it starts with "
            f"{content[:4].hex(' ')!r} instead of {magic.hex(' ')!r}"
        )
    if len(content) < start:
        raise DataError(f"{path}: {len(content)} bytes end inside the header of {start}")
    shape = struct.unpack(f">{num_dims}I", content[4:start])
    expected, found = math.prod(shape), len(content) - start
    if found != expected:
        raise DataError(
            f"{path}: the header promises {expected} bytes for shape {shape}, found {found}; "
            "the file is damaged, fetch it again"
        )
    # A bytearray, since torch warns about memory it may not write to.
    values = torch.frombuffer(bytearray(content), dtype=torch.uint8)
    return values[start:].reshape(shape)


def _unzip(path: Path) -> bytes:
    try:
        with gzip.open(path, "rb") as stream:
            return stream.read()
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(
            f"{path}: cannot be read as gzip ({error}); the file is damaged, fetch it again"
        ) from error
