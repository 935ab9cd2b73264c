"""Frozen language models: sentences become numbers that a small head is put on.

    file = read_gguf(path)            what a GGUF file holds
    model = LanguageModel(file)       its network, in plain torch, and its tokenizer
    model.encode(sentences)           the last state of each sentence's last token

`python -m hardstep.frozen.smollm2` does it for the sentences of SST-2.
"""

from hardstep.frozen.gguf_files import GgufFile, read_gguf
from hardstep.frozen.language_model import LanguageModel
from hardstep.frozen.llama import Llama, LlamaSizes
from hardstep.frozen.tokens import Tokenizer

__all__ = ["GgufFile", "LanguageModel", "Llama", "LlamaSizes", "Tokenizer", "read_gguf"]
