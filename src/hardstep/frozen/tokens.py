"""Texts as numbers of tokens, by the vocabulary and merges of a language model's file.

Byte-level BPE: a text is split, the bytes of every part are written as letters, and pairs of them
are merged in the order in which they were learned.
"""

from collections.abc import Sequence

from hardstep._checks import show
from hardstep.errors import ConfigError, DataError
from hardstep.frozen.gguf_files import GgufFile

_KIND = "gpt2"  # byte-level BPE
_SPLITS = ("gpt-2", "smollm")  # at words and numbers; smollm at every digit, too


class Tokenizer:
    """From texts to lists of token numbers.

    Args:
        file: The language model's.

    Raises:
        ConfigError: tokenizers is not installed.
        DataError: The file's tokenizer is of another kind, or at fault.
    """

    def __init__(self, file: GgufFile) -> None:
        try:
            from tokenizers import Tokenizer as Merger
            from tokenizers.models import BPE
            from tokenizers.pre_tokenizers import ByteLevel, Digits
            from tokenizers.pre_tokenizers import Sequence as InTurn
        except ImportError as error:
            raise ConfigError("a tokenizer needs pip install 'hardstep[text]'") from error
        split = _read_split(file)
        self.tokens = file.texts("tokenizer.ggml.tokens")
        pairs = (merge.partition(" ") for merge in file.texts("tokenizer.ggml.merges"))
        merges = [(first, second) for first, _, second in pairs]
        try:
            model = BPE(vocab={token: n for n, token in enumerate(self.tokens)}, merges=merges)
        except Exception as error:  # what the library raises is no narrower
            raise DataError(f"{file.path}: its merges are at fault: {error}") from error
        self._merger = Merger(model)
        words = ByteLevel(add_prefix_space=False)
        digits = [Digits(individual_digits=True)] if split == "smollm" else []
        self._merger.pre_tokenizer = InTurn([*digits, words])

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """The tokens of each text, none added before or after."""
        return [found.ids for found in self._merger.encode_batch(list(texts))]


def _read_split(file: GgufFile) -> str:
    kind, split = file.text("tokenizer.ggml.model"), file.text("tokenizer.ggml.pre")
    if kind != _KIND or split not in _SPLITS:
        raise DataError(
            f"{file.path}: its tokenizer is {show(kind)}, splitting as {show(split)}; only "
            f"{_KIND!r} is read, splitting as {' or '.join(map(repr, _SPLITS))}"
        )
    if file.has("tokenizer.ggml.add_bos_token"):
        raise DataError(
            f"{file.path}: its tokenizer begins every text with a token of its own, which is not "
            "done here; name another file"
        )
    return split
