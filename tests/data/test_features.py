import gzip

import numpy as np
import pytest
import torch

from hardstep._signals import INTERRUPTED
from hardstep.data import (
    SST2_MINILM,
    SST2_SMOLLM2,
    read_features,
    read_sentences,
    sst2_embeddings,
    sst2_states,
)
from hardstep.data.sst2_features import main, make_features, run
from hardstep.errors import DataError

LINES = "sentence\tlabel\n" + "".join(f"film number {i} \t{i % 2}\n" for i in range(20))


def write_features(folder, features=SST2_MINILM, **changes):
    """A small file of features as the tasks expect it."""
    rng = np.random.default_rng(0)
    arrays = {
        "x_train": rng.normal(size=(30, features.width)).astype(np.float16),
        "y_train": np.arange(30) % 2,
        "x_val": rng.normal(size=(10, features.width)).astype(np.float16),
        "y_val": np.arange(10) % 2,
    }
    path = folder / "sst2" / features.file
    path.parent.mkdir(exist_ok=True)
    kept = {name: value for name, value in (arrays | changes).items() if value is not None}
    np.savez(path, **kept)
    return path


def test_parts_are_the_same_for_every_seed(tmp_path, monkeypatch):
    write_features(tmp_path)
    monkeypatch.setenv("HARDSTEP_DATA", str(tmp_path))
    data, again = sst2_embeddings(0), sst2_embeddings(1)
    test = data.open_test()
    assert [len(data.train), len(data.valid), len(test)] == [27, 3, 10]
    assert data.train.inputs.dtype == torch.float32
    assert torch.equal(data.valid.inputs, again.valid.inputs)
    together = torch.cat([data.train.inputs, data.valid.inputs])
    assert len(together.unique(dim=0)) == 30


def test_states_are_standardized_over_the_training_part_and_of_length_one(tmp_path, monkeypatch):
    rng = np.random.default_rng(1)
    scale = 10.0 ** rng.uniform(-1, 2, SST2_SMOLLM2.width)
    x_train = 3 * scale + scale * rng.normal(size=(400, SST2_SMOLLM2.width))
    write_features(
        tmp_path,
        SST2_SMOLLM2,
        x_train=x_train.astype(np.float32),
        y_train=np.arange(400) % 2,
        x_val=np.ones((10, SST2_SMOLLM2.width)),
    )
    monkeypatch.setenv("HARDSTEP_DATA", str(tmp_path))
    data = sst2_states()
    lengths = torch.cat([part.inputs.norm(dim=1) for part in (data.train, data.valid)])
    assert torch.allclose(lengths, torch.ones(400))
    # Of length one, all numbers weigh the same, and none has a mean of its own but by chance.
    deviation, mean = torch.std_mean(data.train.inputs, dim=0)
    assert deviation.max() < 1.2 * deviation.min()
    assert mean.abs().max() < 0.02 * deviation.min()
    # The test part moves nothing: its sentences are alike, and stay so.
    assert len(data.open_test().inputs.unique(dim=0)) == 1


def test_a_missing_file_names_the_folders_and_the_command(tmp_path, monkeypatch):
    monkeypatch.setenv("HARDSTEP_DATA", str(tmp_path))
    with pytest.raises(DataError, match="make it .* python -m hardstep.data.sst2_features") as told:
        sst2_embeddings()
    assert str(tmp_path / "sst2") in str(told.value)


BAD = {
    "width": ({"x_val": np.zeros((10, 128))}, r"x_val has shape \(10, 128\), and the head takes"),
    "array": ({"y_val": None}, "no array 'y_val', only x_train, y_train, x_val"),
    "labels": ({"y_val": np.zeros((10, 2))}, "y_val should be 10 whole numbers"),
    "class": ({"y_train": np.arange(30)}, "labels of y_train are 0 and 1, got 2"),
    "one class": ({"y_train": np.ones(30, int)}, "all labels of y_train are 1"),
    "infinite": (
        {"x_val": np.full((10, SST2_MINILM.width), np.inf)},
        r"x_val\[0\] has numbers that are",
    ),
    "objects": ({"y_val": np.array([None] * 10)}, "cannot be read as .npz"),
}


@pytest.mark.parametrize("fault", BAD)
def test_features_at_fault_are_refused(tmp_path, fault):
    changes, message = BAD[fault]
    with pytest.raises(DataError, match=message):
        read_features(write_features(tmp_path, **changes), SST2_MINILM.width)


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 cut off", b"not an archive"])
def test_damaged_features_are_refused(tmp_path, content):
    path = tmp_path / "features.npz"
    path.write_bytes(content)
    with pytest.raises(DataError, match="cannot be read as .npz"):
        read_features(path, SST2_MINILM.width)


def test_sentences_are_read_and_empty_lines_left_out(tmp_path):
    path = tmp_path / "lines.tsv"
    path.write_bytes(("\ufeff" + LINES.replace("\n", "\r\n") + "\r\n \r\n").encode())
    sentences, labels = read_sentences(path)
    assert sentences[3] == "film number 3"
    assert labels == [0, 1] * 10


BAD_LINES = {
    "no tab": (LINES + "no class\n", "line 22 is not a sentence, a tab and a class: 'no class'"),
    "no sentence": (LINES + " \t1\n", "line 22 is not a sentence"),
    "class": (LINES + "good\tyes\n", "line 22: the class must be 0 or 1, got 'yes'"),
    "one class": (
        "sentence\tlabel\ngood\t1\nfine\t1\n",
        "and all 2 are of class 1",
    ),
    "nothing": ("", "sentences of both classes, and there are none"),
    "encoding": (LINES.replace("film 3", "é").encode() + b"caf\xe9\t1\n", "not UTF-8 text, at"),
}


@pytest.mark.parametrize("fault", BAD_LINES)
def test_sentences_at_fault_are_refused_with_the_line(tmp_path, fault):
    text, message = BAD_LINES[fault]
    path = tmp_path / "lines.tsv"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(DataError, match=message):
        read_sentences(path)


def write_sentences(folder):
    for name in ("train", "validation"):
        (folder / f"{name}.tsv.gz").write_bytes(gzip.compress(LINES.encode()))


def test_features_are_of_the_sentences_that_were_drawn(tmp_path):
    write_sentences(tmp_path)
    made = tmp_path / "made.npz"
    make_features(tmp_path, made, lambda texts: [[len(t), 1.0] for t in texts], "lengths", num=10)
    train, test = read_features(made, 2)
    assert (len(train), len(test)) == (10, 20)
    with np.load(made) as file:
        assert str(file["source"]) == "lengths"
        assert train.labels.tolist() == [int(row) % 2 for row in file["train_index"]]
    assert test.inputs[:, 0].tolist() == [len(f"film number {i}") for i in range(20)]
    with pytest.raises(DataError, match="20 sentences, fewer than 30"):
        make_features(tmp_path, made, lambda texts: [], "nothing", num=30)


def test_a_bit_of_the_features_that_changes_is_noticed(tmp_path):
    write_sentences(tmp_path)
    made = tmp_path / "made.npz"
    make_features(tmp_path, made, lambda texts: [[len(t), 1.0] for t in texts], "lengths", num=10)
    content = made.read_bytes()
    for place in range(7, len(content) - 40, 211):
        made.write_bytes(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])
        with pytest.raises(DataError, match="cannot be read as .npz: its checksum does not match"):
            read_features(made, 2)


def test_an_interrupt_leaves_nothing_behind(tmp_path, capsys):
    write_sentences(tmp_path)

    def encode(texts):
        raise KeyboardInterrupt

    made = tmp_path / "made.npz"
    assert run(lambda: make_features(tmp_path, made, encode, "nothing", num=10)) == INTERRUPTED
    assert capsys.readouterr().err == "hardstep: interrupted, nothing is written\n"
    assert not list(tmp_path.glob("*made*"))


def test_the_command_says_how_it_is_used(capsys):
    assert main([]) == 2
    assert main(["--help"]) == 0
    assert "pip install sentence-transformers" in capsys.readouterr().out
