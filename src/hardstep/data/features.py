"""Sentences as a frozen model sees them: features to put a small head on.

SST-2 (Socher et al. 2013) holds sentences of film reviews, 0 negative and 1 positive. A frozen
model turned 5,000 training sentences and the 872 of the validation part into numbers:

    sst2_embeddings   all-MiniLM-L6-v2, 384 of each sentence
    sst2_states       SmolLM2-135M, the 576 of its last state at each sentence's last token

500 of the 5,000 are for validation, the same for every seed; the 872 are the test part. The files
are not bundled; each has a module that makes it from the sentences.
"""

import zlib
from dataclasses import dataclass
from pathlib import Path
from zipfile import BadZipFile

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import normalize

from hardstep._seals import verify_archive
from hardstep.data.archives import list_folders
from hardstep.data.dataset import DataSet, Split, hold_out
from hardstep.errors import DataError

SST2_FOLDER = "sst2"
_ARRAYS = ("x_train", "y_train", "x_val", "y_val")


@dataclass(frozen=True)
class Features:
    """What one model makes of the sentences of SST-2.

    Args:
        name: What the data are called.
        model: What the model is called.
        width: Numbers of a sentence.
        file: Where they are, in a folder of SST-2.
        maker: The command that makes the file.
    """

    name: str
    model: str
    width: int
    file: str
    maker: str


SST2_MINILM = Features(
    "sst2-minilm",
    "MiniLM",
    384,
    "sst2-minilm-embeddings.npz",
    "python -m hardstep.data.sst2_features --help",
)
SST2_SMOLLM2 = Features(
    "sst2-smollm2",
    "SmolLM2",
    576,
    "sst2-smollm2-features.npz",
    "python -m hardstep.frozen.smollm2",
)


def sst2_embeddings(seed: int = 0) -> DataSet:
    """4,500 / 500 / 872 sentences, two classes, inputs (N, 384) of length one.

    The seed changes nothing.

    Raises:
        DataError: The file is missing, damaged, or of another model.
    """
    del seed
    train, valid, test = _read_parts(SST2_MINILM)
    return DataSet(SST2_MINILM.name, train, valid, test, num_classes=2)


def sst2_states(seed: int = 0) -> DataSet:
    """4,500 / 500 / 872 sentences, two classes, inputs (N, 576) of length one.

    Some of the model's numbers are many times as large as others, so each is standardized over the
    training part before sentences get their length. The seed changes nothing.

    Raises:
        DataError: The file is missing, damaged, or of another model.
    """
    del seed
    parts = _read_parts(SST2_SMOLLM2)
    deviation, mean = torch.std_mean(parts[0].inputs, dim=0)
    train, valid, test = (
        Split(normalize((part.inputs - mean) / deviation, dim=1), part.labels) for part in parts
    )
    return DataSet(SST2_SMOLLM2.name, train, valid, test, num_classes=2)


def _read_parts(features: Features) -> tuple[Split, Split, Split]:
    train, test = read_features(find_features(features), features.width)
    return *hold_out(train, seed=0), test


def find_features(features: Features) -> Path:
    """Where the file is.

    Raises:
        DataError: There is none; the message names the command that makes it.
    """
    looked = [folder / features.file for folder in list_folders(SST2_FOLDER)]
    for path in looked:
        if path.is_file():
            return path
    raise DataError(
        f"{features.name}: there is no {' and no '.join(map(str, looked))}; make it from the "
        f"sentences of SST-2: {features.maker}"
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
        with (
            path.open("rb") as stream,
            np.load(verify_archive(stream), allow_pickle=False) as file,
        ):
            names = file.files
            known = [name for name in _ARRAYS if name in names]
            arrays = {name: torch.from_numpy(np.ascontiguousarray(file[name])) for name in known}
    except (DataError, OSError, EOFError, ValueError, TypeError, BadZipFile, zlib.error) as error:
        reason = getattr(error, "strerror", None) or error
        raise DataError(f"{path} cannot be read as .npz: {reason}; make it again") from error
    missing = [name for name in _ARRAYS if name not in known]
    if missing:
        raise DataError(
            f"{path} has no array {missing[0]!r}, only {', '.join(names)}; is it another file?"
        )
    return arrays


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
