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

from hardstep._files import explain_failed_write, write_atomically
from hardstep._seals import seal_archive
from hardstep._signals import INTERRUPTED
from hardstep._text import to_sentence
from hardstep.data.features import SST2_MINILM
from hardstep.data.tsv_files import read_sentences
from hardstep.errors import ConfigError, DataError, HardstepError

MODEL = "sentence-transformers/all-MiniLM-L6-v2"
SENTENCES = 5_000  # of the training part
Encode = Callable[[Sequence[str]], Any]


def make_features(
    folder: Path, target: Path, encode: Encode, source: str, num: int = SENTENCES
) -> None:
    """Encode the sentences in a folder and write their features to a file with a checksum.

    Args:
        folder: With train.tsv.gz and validation.tsv.gz.
        target: The file.
        encode: From sentences to an array (sentences, numbers).
        source: The model, for whoever finds the file.
        num: Training sentences, drawn once for all.

    Raises:
        DataError: A file is missing or at fault, or has too few sentences; or none can be written.
    """
    texts, labels = read_sentences(folder / "train.tsv.gz")
    if len(texts) < num:
        raise DataError(f"{folder / 'train.tsv.gz'} has {len(texts):,} sentences, fewer than {num}")
    index = np.sort(np.random.default_rng(0).choice(len(texts), num, replace=False))
    others, classes = read_sentences(folder / "validation.tsv.gz")
    encoded = np.asarray(encode([*(texts[i] for i in index), *others]), dtype=np.float16)
    with (
        explain_failed_write(target),
        write_atomically(target) as temporary,
        temporary.open("w+b") as stream,
    ):
        np.savez(
            stream,
            x_train=encoded[:num],
            y_train=np.array(labels)[index],
            x_val=encoded[num:],
            y_val=np.array(classes),
            train_index=index,
            source=source,
        )
        seal_archive(stream)


def make_embeddings(folder: Path) -> Path:
    """Encode the sentences in a folder with MiniLM; where their features are.

    Raises:
        ConfigError: sentence-transformers is not installed.
        DataError: A file is missing or at fault, or none can be written.
    """
    target = folder / SST2_MINILM.file
    make_features(folder, target, _load_encoder(), MODEL)
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


def run(make: Callable[[], Path]) -> int:
    """Make features and print where they are; returns the exit code."""
    try:
        print(make())
    except HardstepError as error:
        print(f"hardstep: {to_sentence(str(error))}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("hardstep: interrupted, nothing is written", file=sys.stderr)
        return INTERRUPTED
    return 0


def main(arguments: Sequence[str]) -> int:
    """Make the features; returns the exit code."""
    if len(arguments) != 1 or arguments[0].startswith("-"):
        print(__doc__.strip())
        return 0 if list(arguments) in (["-h"], ["--help"]) else 2
    return run(lambda: make_embeddings(Path(arguments[0])))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
