"""Makes the features of SST-2 that the tasks of heads read.

    pip install sentence-transformers
    python -m hardstep.data.sst2_features FOLDER

FOLDER holds `train.tsv.gz` and `validation.tsv.gz`, the train.tsv and dev.tsv of GLUE's SST-2
gzipped, and gets `sst2-minilm-embeddings.npz`. Set HARDSTEP_DATA to the folder above one that is
called `sst2`.
"""

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from hardstep._files import write_atomically
from hardstep.data.features import SST2_FILE
from hardstep.data.tsv_files import read_sentences
from hardstep.errors import ConfigError, DataError, HardstepError

MODEL = "sentence-transformers/all-MiniLM-L6-v2"
SENTENCES = 5_000  # of the training part
Encode = Callable[[Sequence[str]], Any]


def make_features(folder: Path, encode: Encode, num: int = SENTENCES) -> Path:
    """Encode the sentences in a folder and write their features there.

    Args:
        folder: With train.tsv.gz and validation.tsv.gz.
        encode: From sentences to an array (sentences, numbers).
        num: Training sentences, drawn once for all.

    Raises:
        DataError: A file is missing or at fault, or has too few sentences.
    """
    texts, labels = read_sentences(folder / "train.tsv.gz")
    if len(texts) < num:
        raise DataError(f"{folder / 'train.tsv.gz'} has {len(texts):,} sentences, fewer than {num}")
    index = np.sort(np.random.default_rng(0).choice(len(texts), num, replace=False))
    others, classes = read_sentences(folder / "validation.tsv.gz")
    target = folder / SST2_FILE
    with write_atomically(target) as temporary, temporary.open("wb") as stream:
        np.savez(
            stream,
            x_train=np.asarray(encode([texts[i] for i in index]), dtype=np.float16),
            y_train=np.array(labels)[index],
            x_val=np.asarray(encode(others), dtype=np.float16),
            y_val=np.array(classes),
            train_index=index,
        )
    return target


def _load_encoder() -> Encode:
    try:
        from sentence_transformers import SentenceTransformer
    except ImportError as error:
        raise ConfigError(
            "the features need sentence-transformers: pip install sentence-transformers"
        ) from error
    model = SentenceTransformer(MODEL, device="cpu")
    return lambda texts: model.encode(list(texts), normalize_embeddings=True)


def main(arguments: Sequence[str]) -> int:
    """Make the features; returns the exit code."""
    if len(arguments) != 1 or arguments[0].startswith("-"):
        print(__doc__.strip())
        return 0 if list(arguments) in (["-h"], ["--help"]) else 2
    try:
        print(make_features(Path(arguments[0]), _load_encoder()))
    except HardstepError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
