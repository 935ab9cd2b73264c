"""A language model of our own making against transformers' reading of the same file, and faults."""

import re
import sys
from contextlib import suppress

import numpy as np
import pytest
import torch

gguf = pytest.importorskip("gguf")
pytest.importorskip("tokenizers")

from hardstep.errors import ConfigError, DataError  # noqa: E402
from hardstep.frozen import LanguageModel, read_gguf  # noqa: E402
from tests.frozen.models import HIDDEN, TOKENS, WIDTH, write_model  # noqa: E402

TEXTS = [
    "the film",
    "the 12 films of 1995 , isn't it ?",
    "caf\u00e9  \u00bd 漢字 !",
    "in",
    "the end",
    "the\tthin  line ",
]


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return write_model(tmp_path_factory.mktemp("frozen") / "tiny.gguf")


@pytest.fixture(scope="module")
def model(path):
    return LanguageModel(read_gguf(path))


@pytest.fixture(scope="module")
def reference(path):
    """The model that transformers makes of the file, and its tokenizer."""
    pytest.importorskip("transformers")
    from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM
    from transformers.modeling_gguf_pytorch_utils import load_gguf_checkpoint

    config = LlamaConfig(**load_gguf_checkpoint(path)["config"])
    network = LlamaForCausalLM(config)
    weights = load_gguf_checkpoint(path, return_tensors=True, model_to_load=network)["tensors"]
    left = network.load_state_dict(weights, strict=False)
    assert (left.missing_keys, left.unexpected_keys) == (["lm_head.weight"], [])
    network.tie_weights()
    return network.eval(), AutoTokenizer.from_pretrained(path.parent, gguf_file=path.name)


@torch.no_grad()
def test_logits_are_those_of_transformers_on_the_same_file(model, reference):
    tokens = torch.randint(len(TOKENS), (3, 17), generator=torch.Generator().manual_seed(0))
    logits = model.network.predict(model.network(tokens))
    assert logits.std() > 1
    # Not in float64: transformers' norms and angles are float32 whatever the weights are.
    torch.testing.assert_close(logits, reference[0](tokens).logits, rtol=0, atol=1e-4)


def test_tokens_are_those_of_transformers(tmp_path, reference):
    words = write_model(tmp_path / "words.gguf", tokenizer__ggml__pre="gpt-2")  # as it splits
    tokens = LanguageModel(read_gguf(words)).tokenizer.encode(TEXTS)
    assert tokens == reference[1](TEXTS, add_special_tokens=False)["input_ids"]
    assert reference[1].batch_decode(tokens) == TEXTS


def test_smollm_splits_at_every_digit(model):
    (found,) = model.tokenizer.encode(["the film 12"])
    assert [TOKENS[token] for token in found] == ["the", "Ġfilm", "Ġ", "1", "2"]
    assert "12" in TOKENS


def test_states_of_texts_are_those_of_each_alone(model):
    texts = [f"{text} {end}" for text in TEXTS for end in ("a", "film", "and then in the film")]
    heard = []
    states = model.encode(texts, heard.append)
    tokens = [torch.tensor([found]) for found in model.tokenizer.encode(texts)]
    with torch.no_grad():
        alone = torch.cat([model.network(one)[:, -1] for one in tokens])
    torch.testing.assert_close(states, alone, rtol=0, atol=1e-5)
    assert len({one.shape for one in tokens}) > 3
    assert heard == sorted(heard)
    assert heard[-1] == len(texts)


def test_an_empty_text_is_refused(model):
    with pytest.raises(DataError, match="text 1 is empty"):
        model.encode(["the film", "", "in"])
    assert model.encode([]).shape == (0, WIDTH)


def test_weights_are_drawn_by_nobody(path):
    before = torch.get_rng_state()
    LanguageModel(read_gguf(path))
    assert torch.equal(torch.get_rng_state(), before)


def test_an_output_layer_of_its_own_is_used(path):
    values = np.random.default_rng(1).normal(size=(len(TOKENS), WIDTH))
    stored = {"output.weight": (values, gguf.GGMLQuantizationType.F32)}
    file = read_gguf(write_model(path.with_name("untied.gguf"), tensors=stored))
    states = torch.eye(WIDTH)
    logits = LanguageModel(file).network.predict(states)
    torch.testing.assert_close(logits.T, torch.from_numpy(values).float())


FLAT = gguf.GGMLQuantizationType.F32
FAULTS = {
    "architecture": (
        {"architecture": "qwen2"},
        "a model of architecture 'qwen2', and only 'llama'",
    ),
    "no field": ({"llama__block_count": None}, "has no field 'llama.block_count'"),
    "word": ({"llama__embedding_length": "wide"}, "must be a whole number > 0, got 'wide'"),
    "zero": ({"llama__attention__head_count_kv": 0}, "head_count_kv' must be a whole number > 0"),
    "heads": ({"llama__attention__head_count": 7}, "width 64, 7 heads and 2 key heads"),
    "width": (
        {"llama__embedding_length": 2**32 - 8, "llama__rope__dimension_count": 2**30 - 2},
        "no memory holds its network of",
    ),
    "base": ({"llama__rope__freq_base": float("nan")}, "must be a number > 0, got nan"),
    "many blocks": ({"llama__block_count": 2**31}, "20 tensors are no 2,147,483,648 blocks"),
    "turns": ({"llama__rope__dimension_count": 8}, "the model turns 8 of 16 numbers of a head"),
    "scaling": ({"llama__rope__scaling__type": "yarn"}, "the model scales its positions"),
    "no tensor": (
        {"tensors": {"blk.1.attn_q.weight": None}},
        r"'blk.1.attn_q.weight' should have shape \(64, 64\), and there is none",
    ),
    "no embeddings": ({"tensors": {"token_embd.weight": None}}, "and there is none"),
    "shape": ({"llama__feed_forward_length": 32}, rf"shape \(32, 64\), got \({HIDDEN}, 64\)"),
    "unknown tensor": (
        {"tensors": {"blk.0.attn_q.bias": (np.zeros(WIDTH), FLAT)}},
        "tensor 'blk.0.attn_q.bias' is none of a plain llama's",
    ),
    "not finite": (
        {"tensors": {"output_norm.weight": (np.full(WIDTH, np.nan), FLAT)}},
        "tensor 'output_norm.weight' has numbers that are not finite",
    ),
    "tokenizer": ({"tokenizer__ggml__model": "llama"}, "its tokenizer is 'llama', splitting as"),
    "splits": ({"tokenizer__ggml__pre": "qwen2"}, "splitting as 'qwen2'; only 'gpt2' is read"),
    "first token": (
        {"tokenizer__ggml__add_bos_token": True},
        "its tokenizer begins every text with a token of its own",
    ),
    "merges": ({"tokenizer__ggml__merges": ["q zz"]}, "its merges are at fault"),
    "no pair": ({"tokenizer__ggml__merges": ["q"]}, "its merges are at fault"),
    "no list": ({"tokenizer__ggml__tokens": "a"}, "must be a list of texts, got 'a'"),
    "more tokens": (
        {"tokenizer__ggml__tokens": [*TOKENS, "extra"]},
        f"names {len(TOKENS) + 1} tokens, and has embeddings of {len(TOKENS)}",
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_model_at_fault_is_refused(tmp_path, fault):
    changes, message = FAULTS[fault]
    with pytest.raises(DataError, match=f"model.gguf.*{message}"):
        LanguageModel(read_gguf(write_model(tmp_path / "model.gguf", **changes)))


@pytest.mark.parametrize("kept", [0, 3, 20, 500, 9_000, 60_000, -1])
def test_a_file_that_is_cut_off_is_refused(tmp_path, path, kept):
    cut = tmp_path / "cut.gguf"
    cut.write_bytes(path.read_bytes()[:kept])
    with pytest.raises(DataError, match=f"^{re.escape(str(cut))} is no GGUF file, or cut off"):
        read_gguf(cut)


def test_a_damaged_file_is_read_or_refused(tmp_path, path):
    content, damaged = path.read_bytes(), tmp_path / "damaged.gguf"
    rng = np.random.default_rng(0)
    for place in rng.integers(0, len(content), 20):
        changed = bytearray(content)
        changed[place] ^= int(rng.integers(1, 256))
        damaged.write_bytes(changed)
        with suppress(DataError):
            LanguageModel(read_gguf(damaged))


def test_a_missing_file_and_a_missing_library_are_told(tmp_path, path, monkeypatch):
    with pytest.raises(DataError, match="there is no file .*none.gguf"):
        read_gguf(tmp_path / "none.gguf")
    monkeypatch.setitem(sys.modules, "gguf", None)
    with pytest.raises(ConfigError, match=r"pip install 'hardstep\[text\]'"):
        read_gguf(path)
