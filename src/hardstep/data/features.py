"""Sentences as a frozen model sees them: features to put a small head on.

SST-2 (Socher et al. 2013) holds sentences of film reviews, 0 negative and 1 positive. A frozen
all-MiniLM-L6-v2 turned 5,000 training sentences and the 872 of the validation part into 384 numbers
each. 500 of the 5,000 are for validation, the same for every seed; the 872 are the test part.

The file is not bundled. `python -m hardstep.data.sst2_features` makes it from the sentences.
"""

import os
import zipfile
import zlib
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from hardstep._files import cache_folder
from hardstep.data.dataset import DataSet, Split, hold_out
from hardstep.errors import DataError

SST2_WIDTH = 384
SST2_FILE = "sst2-minilm-embeddings.npz"
_FOLDER = "sst2"
_ARRAYS = ("x_train", "y_train", "x_val", "y_val")


def sst2_embeddings(seed: int = 0) -> DataSet:
    """4,500 / 500 / 872 sentences, two classes, inputs (N, 384) of length one.

    The seed changes nothing.

    Raises:
        DataError: The file is missing, damaged, or of another model.
    """
    del seed
    train, test = read_features(_find(), SST2_WIDTH)
    train, valid = hold_out(train, seed=0)
    return DataSet("sst2-minilm", train, valid, test, num_classes=2)


def folders() -> list[Path]:
    """Where files of SST-2 may be, in the order of looking."""
    provided = os.environ.get("HARDSTEP_DATA")
    own = [Path(provided, _FOLDER)] if provided else []
    return [*own, cache_folder() / _FOLDER]


def _find() -> Path:
    looked = [folder / SST2_FILE for folder in folders()]
    for path in looked:
        if path.is_file():
            return path
    raise DataError(
        f"sst2: there is no {' and no '.join(map(str, looked))}; make it from the sentences of "
        "SST-2: python -m hardstep.data.sst2_features --help"
    )


def read_features(path: Path, width: int) -> tuple[Split, Split]:
    """The train and test parts of a file of features, float32.

    Args:
        path: An .npz file of x_train (N, width), y_train (N,), x_val and y_val.
        width: Numbers that the head takes of every example.

    Raises:
        DataError: It cannot be read, or is not such a file; the message says what it holds.
    """
    arrays = _load(path)
    parts = []
    for part in ("train", "val"):
        inputs, labels = arrays[f"x_{part}"], arrays[f"y_{part}"]
        _check(path, part, inputs, labels, width)
        parts.append(Split(inputs.to(torch.float32), labels.long()))
    if bool((parts[0].labels == parts[0].labels[0]).all()):
        raise DataError(
            f"{path}: all labels of y_train are {int(parts[0].labels[0])}; a classifier needs "
            "examples of two classes"
        )
    return parts[0], parts[1]


def _load(path: Path) -> dict[str, Tensor]:
    try:
        with path.open("rb") as stream, np.load(stream, allow_pickle=False) as file:
            missing = [name for name in _ARRAYS if name not in file.files]
            if missing:
                raise DataError(
                    f"{path} has no array {missing[0]!r}, only {', '.join(file.files)}; is it "
                    "another file?"
                )
            return {name: torch.from_numpy(np.ascontiguousarray(file[name])) for name in _ARRAYS}
    except DataError:
        raise
    except (OSError, EOFError, ValueError, TypeError, zipfile.BadZipFile, zlib.error) as error:
        reason = getattr(error, "strerror", None) or error
        raise DataError(f"{path} cannot be read as .npz: {reason}; make it again") from error


def _check(path: Path, part: str, inputs: Tensor, labels: Tensor, width: int) -> None:
    if inputs.dim() != 2 or inputs.shape[1] != width:
        raise DataError(
            f"{path}: x_{part} has shape {tuple(inputs.shape)}, and the head takes {width} numbers "
            "of every example; use the features it was made for, or a head of their width"
        )
    if labels.shape != inputs.shape[:1] or labels.is_floating_point():
        raise DataError(
            f"{path}: y_{part} should be {len(inputs):,} whole numbers, got shape "
            f"{tuple(labels.shape)} of {str(labels.dtype).removeprefix('torch.')}"
        )
    if not bool(inputs.isfinite().all()):
        row = int((~inputs.isfinite()).any(dim=1).nonzero()[0])
        raise DataError(f"{path}: x_{part}[{row}] has numbers that are not finite")
    odd = labels[(labels < 0) | (labels > 1)]
    if len(odd):
        raise DataError(f"{path}: labels of y_{part} are 0 and 1, got {int(odd[0])}")
