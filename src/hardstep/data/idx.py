"""Reader for gzipped IDX files of bytes, the format of MNIST and Fashion-MNIST.

0 0 8 n        magic: two zeros, type 8 (unsigned byte), number of dimensions
n big-endian 32-bit sizes
the values, last dimension fastest
"""

import gzip
import math
import struct
import zlib
from pathlib import Path

import torch
from torch import Tensor

from hardstep.errors import DataError

_UNSIGNED_BYTE = 8


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
        raise DataError(f"{path}: cannot be read as gzip ({error})") from error
