"""A language model of two blocks with random weights, as a GGUF file like those of real ones."""

import gguf
import numpy as np
from gguf import GGMLQuantizationType as Kind
from tokenizers.pre_tokenizers import ByteLevel

WIDTH, HIDDEN, HEADS, KEY_HEADS, BLOCKS = 64, 96, 4, 2, 2
MERGES = ["h e", "t he", "Ġ the", "i n", "Ġ Ġ", "1 2", "Ġ f", "i l", "il m", "Ġf ilm"]
TOKENS = ["<|endoftext|>", *sorted(ByteLevel.alphabet()), *(m.replace(" ", "") for m in MERGES)]
FIELDS = {
    "llama.context_length": 512,
    "llama.block_count": BLOCKS,
    "llama.embedding_length": WIDTH,
    "llama.feed_forward_length": HIDDEN,
    "llama.attention.head_count": HEADS,
    "llama.attention.head_count_kv": KEY_HEADS,
    "llama.attention.layer_norm_rms_epsilon": 1e-5,
    "llama.rope.freq_base": 100_000.0,
    "llama.rope.dimension_count": WIDTH // HEADS,
    "llama.vocab_size": len(TOKENS),
    "tokenizer.ggml.model": "gpt2",
    "tokenizer.ggml.pre": "smollm",
    "tokenizer.ggml.add_bos_token": False,
    "tokenizer.ggml.tokens": TOKENS,
    "tokenizer.ggml.token_type": [3] + [1] * (len(TOKENS) - 1),
    "tokenizer.ggml.merges": MERGES,
    "tokenizer.ggml.bos_token_id": 0,
    "tokenizer.ggml.eos_token_id": 0,
    "tokenizer.ggml.unknown_token_id": 0,
    "tokenizer.ggml.padding_token_id": 0,
}


def draw_tensors(seed=0):
    """Weights by name, with how they are stored."""
    rng = np.random.default_rng(seed)
    keys = KEY_HEADS * WIDTH // HEADS
    shapes = {
        "attn_q.weight": (WIDTH, WIDTH, Kind.Q4_1),
        "attn_k.weight": (keys, WIDTH, Kind.Q4_1),
        "attn_v.weight": (keys, WIDTH, Kind.Q4_1),
        "attn_output.weight": (WIDTH, WIDTH, Kind.Q4_1),
        "ffn_gate.weight": (HIDDEN, WIDTH, Kind.F16),
        "ffn_up.weight": (HIDDEN, WIDTH, Kind.F32),
        "ffn_down.weight": (WIDTH, HIDDEN, Kind.Q4_1),
    }
    tensors = {"token_embd.weight": (rng.normal(size=(len(TOKENS), WIDTH)), Kind.Q8_0)}
    norms = ["output_norm.weight"]
    for block in range(BLOCKS):
        norms += [f"blk.{block}.{name}_norm.weight" for name in ("attn", "ffn")]
        for name, (rows, columns, kind) in shapes.items():
            values = rng.normal(size=(rows, columns)) / columns**0.5
            tensors[f"blk.{block}.{name}"] = (values, kind)
    return tensors | {name: (rng.uniform(0.5, 2.0, WIDTH), Kind.F32) for name in norms}


def write_model(path, architecture="llama", tensors=None, **fields):
    """A file of it; a field or tensor that is None is left out, and dots in names are `__`."""
    changed = {name.replace("__", "."): value for name, value in fields.items()}
    writer = gguf.GGUFWriter(path, architecture)
    for key, value in (FIELDS | changed).items():
        if value is not None:
            _add_field(writer, key, value)
    for name, stored in (draw_tensors() | (tensors or {})).items():
        if stored is not None:
            values, kind = stored
            data = gguf.quantize(np.asarray(values, np.float32), kind)
            writer.add_tensor(name, data, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _add_field(writer, key, value):
    if isinstance(value, list):
        writer.add_array(key, value)
    elif isinstance(value, bool):
        writer.add_bool(key, value)
    elif isinstance(value, str):
        writer.add_string(key, value)
    elif isinstance(value, float):
        writer.add_float32(key, value)
    else:
        writer.add_uint32(key, value)
