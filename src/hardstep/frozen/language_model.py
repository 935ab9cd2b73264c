"""A language model from its file, and what it makes of sentences."""

from collections import defaultdict
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from hardstep._checks import show
from hardstep.errors import ConfigError, DataError
from hardstep.frozen.gguf_files import GgufFile
from hardstep.frozen.llama import Llama, LlamaSizes
from hardstep.frozen.tokens import Tokenizer

_ARCHITECTURE = "llama"
_TOKENS = 1024  # of a forward pass


class LanguageModel:
    """A llama that is not trained any more, with its tokenizer.

    Args:
        file: Of the model.

    Raises:
        DataError: It is of another architecture, or a field or tensor is missing or unknown.
    """

    def __init__(self, file: GgufFile) -> None:
        _check_architecture(file)
        self.network = build_llama(file)
        self.tokenizer = Tokenizer(file)
        if len(self.tokenizer.tokens) > self.network.sizes.vocabulary:
            raise DataError(
                f"{file.path} names {len(self.tokenizer.tokens):,} tokens, and has embeddings of "
                f"{self.network.sizes.vocabulary:,}"
            )

    @torch.no_grad()
    def encode(
        self, texts: Sequence[str], report: Callable[[int], None] = lambda done: None
    ) -> Tensor:
        """The last state (texts, width) of the last token of each text.

        Args:
            texts: None of them empty.
            report: Hears now and then how many texts are done.

        Raises:
            DataError: A text is empty, so that it has no last token.
        """
        if not all(texts):
            raise DataError(f"text {list(map(bool, texts)).index(False)} is empty; leave it out")
        tokens = self.tokenizer.encode(texts)
        by_length = defaultdict(list)  # texts of one length need no padding
        for place, found in enumerate(tokens):
            by_length[len(found)].append(place)
        states = torch.empty(len(texts), self.network.sizes.width)
        done = 0
        for length, places in sorted(by_length.items()):
            for some in torch.split(torch.tensor(places), max(1, _TOKENS // length)):
                batch = torch.tensor([tokens[place] for place in some])
                states[some] = self.network(batch)[:, -1]
                done += len(some)
                report(done)
        return states


def build_llama(file: GgufFile) -> Llama:
    """The network of a file, in float32.

    Raises:
        DataError: A field or tensor is missing, unknown, or of another shape.
    """
    sizes = _read_sizes(file)
    try:
        with torch.device("meta"):  # weights come from the file: none are drawn
            network = Llama(sizes)
    except RuntimeError as error:
        raise DataError(f"{file.path}: no memory holds its network of {sizes}") from error
    wanted = {name: tuple(value.shape) for name, value in network.state_dict().items()}
    _check_tensors(file, wanted)
    weights = {name: file.dequantize(name) for name in wanted}
    network.load_state_dict(weights, assign=True)
    return network.requires_grad_(False).eval()


def _check_architecture(file: GgufFile) -> None:
    found = file.text("general.architecture")
    if found != _ARCHITECTURE:
        raise DataError(
            f"{file.path} holds a model of architecture {show(found)}, and only "
            f"{_ARCHITECTURE!r} is read; name another file"
        )


def _read_sizes(file: GgufFile) -> LlamaSizes:
    """What the file's fields say of its network.

    Raises:
        DataError: They contradict each other, or ask for what our network does not do.
    """
    blocks = file.count("llama.block_count")
    if blocks > len(file.shapes):
        raise DataError(f"{file.path}: {len(file.shapes)} tensors are no {blocks:,} blocks")
    try:
        sizes = LlamaSizes(
            vocabulary=file.shapes.get("token_embd.weight", (1,))[0],
            blocks=blocks,
            width=file.count("llama.embedding_length"),
            hidden=file.count("llama.feed_forward_length"),
            heads=file.count("llama.attention.head_count"),
            key_heads=file.count("llama.attention.head_count_kv"),
            base=file.number("llama.rope.freq_base"),
            epsilon=file.number("llama.attention.layer_norm_rms_epsilon"),
            tied="output.weight" not in file.shapes,
        )
    except ConfigError as error:
        raise DataError(f"{file.path}: {error}") from error
    turned = file.count("llama.rope.dimension_count")
    if turned != sizes.head or file.has("llama.rope.scaling.type"):
        how = f"turns {turned} of {sizes.head} numbers of a head"
        how = "scales its positions" if turned == sizes.head else how
        raise DataError(f"{file.path}: the model {how}, which is not done here; name another file")
    return sizes


def _check_tensors(file: GgufFile, wanted: dict[str, tuple[int, ...]]) -> None:
    for name, shape in wanted.items():
        found = file.shapes.get(name)
        if found != shape:
            raise DataError(
                f"{file.path}: tensor {name!r} should have shape {shape}, "
                f"{'and there is none' if found is None else f'got {found}'}"
            )
    unknown = [name for name in file.shapes if name not in wanted]
    if unknown:
        raise DataError(f"{file.path}: tensor {show(unknown[0])} is none of a plain llama's")
