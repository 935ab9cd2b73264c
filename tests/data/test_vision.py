import gzip
import urllib.error
import urllib.request
from contextlib import suppress

import numpy as np
import pytest
import torch

import hardstep.data
from hardstep.data import fashion_mnist, mnist, mnist_and_fashion, read_idx
from hardstep.errors import DataError
from tests.damage import cut_off, flip_bytes

TRAIN, TEST = 40, 12


@pytest.fixture
def folder(tmp_path, idx_file, monkeypatch):
    """A data folder with tiny images: all 0 for MNIST labels, all 255 for Fashion."""
    for name, pixel in (("mnist", 0), ("fashion-mnist", 255)):
        for part, count in (("train", TRAIN), ("t10k", TEST)):
            images = np.full((count, 28, 28), pixel)
            idx_file(tmp_path / "data" / name / f"{part}-images-idx3-ubyte.gz", images)
            idx_file(
                tmp_path / "data" / name / f"{part}-labels-idx1-ubyte.gz", np.arange(count) % 10
            )
    monkeypatch.setenv("HARDSTEP_DATA", str(tmp_path / "data"))
    return tmp_path / "data"


@pytest.mark.parametrize(
    ("load", "value"),
    [(mnist, (0.0 - 0.1307) / 0.3081), (fashion_mnist, (1.0 - 0.2860) / 0.3530)],
    ids=["mnist", "fashion"],
)
@pytest.mark.usefixtures("folder")
def test_images_are_flat_standardized_and_split_by_the_seed(load, value):
    data = load(0)
    test = data.open_test()
    assert (len(data.train), len(data.valid), len(test)) == (36, 4, 12)
    assert data.num_classes == 10
    for part in (data.train, data.valid, test):
        torch.testing.assert_close(part.inputs, torch.full((len(part), 784), value))
    together = torch.cat([data.train.labels, data.valid.labels])
    assert together.bincount().tolist() == [4] * 10
    assert torch.equal(load(0).train.labels, data.train.labels)
    assert not torch.equal(load(1).train.labels, data.train.labels)


@pytest.mark.usefixtures("folder")
def test_clothing_gets_labels_10_to_19_and_keeps_its_own_scale():
    data = mnist_and_fashion(0)
    test = data.open_test()
    assert (len(data.train), len(data.valid), len(test)) == (72, 8, 24)
    assert data.num_classes == 20
    for part in (data.train, data.valid, test):
        is_clothing = part.labels >= 10
        assert torch.all(part.inputs[is_clothing] > 2.0)
        assert torch.all(part.inputs[~is_clothing] < -0.4)
    assert test.labels.unique().tolist() == list(range(20))


def test_more_images_than_labels_are_refused(folder, idx_file):
    idx_file(folder / "mnist" / "train-labels-idx1-ubyte.gz", np.zeros(TRAIN - 1))
    with pytest.raises(DataError, match="40 inputs but 39 labels"):
        mnist(0)


def test_without_files_and_network_the_message_names_the_folder_to_fill(monkeypatch):
    def unreachable(url, timeout):
        raise urllib.error.URLError("no network")

    monkeypatch.setattr(urllib.request, "urlopen", unreachable)
    with pytest.raises(DataError, match="fashion-mnist: looked for train-images-idx3-ubyte.gz"):
        fashion_mnist(0)


def test_public_names_are_sorted_and_exist():
    assert hardstep.data.__all__ == sorted(hardstep.data.__all__)
    assert all(hasattr(hardstep.data, name) for name in hardstep.data.__all__)


# -- IDX files ----------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(7,), (3, 4), (2, 3, 5)])
def test_an_array_survives_writing_and_reading(tmp_path, idx_file, shape):
    array = np.arange(np.prod(shape), dtype=np.uint8).reshape(shape)
    idx_file(tmp_path / "a.gz", array)
    np.testing.assert_array_equal(read_idx(tmp_path / "a.gz", len(shape)).numpy(), array)


def damaged(content):
    return {
        "a missing byte": (content[:-1], "promises 24 bytes for shape .* found 23"),
        "a byte too many": (content + b"\0", "promises 24 bytes for shape .* found 25"),
        "a broken header": (content[:9], "9 bytes end inside the header of 16"),
        "another magic": (
            b"\1" + content[1:],
            "starts with '01 00 08 03' instead of '00 00 08 03'",
        ),
        "another type": (content[:2] + b"\x0d" + content[3:], "starts with '00 00 0d 03'"),
        "nothing inside": (b"", "starts with '' instead of"),
    }


@pytest.mark.parametrize("damage", list(damaged(b"")))
def test_a_damaged_array_is_refused_with_its_fault(tmp_path, idx_file, damage):
    path = tmp_path / "a.gz"
    idx_file(path, np.zeros((2, 3, 4)))
    content, message = damaged(gzip.decompress(path.read_bytes()))[damage]
    path.write_bytes(gzip.compress(content))
    with pytest.raises(DataError, match=message):
        read_idx(path, num_dims=3)


def test_a_truncated_or_corrupt_gzip_stream_is_refused(tmp_path, idx_file):
    path = tmp_path / "a.gz"
    rng = np.random.default_rng(0)
    idx_file(path, rng.integers(0, 256, (20, 8, 8)))
    whole = path.read_bytes()
    flipped = whole[:50] + bytes([whole[50] ^ 0xFF]) + whole[51:]
    for content in (whole[: len(whole) // 2], b"not gzip at all", flipped):
        path.write_bytes(content)
        with pytest.raises(DataError, match=r"a\.gz: cannot be read as gzip"):
            read_idx(path, num_dims=3)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(DataError, match=r"none\.gz: cannot be read as gzip"):
        read_idx(tmp_path / "none.gz", num_dims=1)


def test_labels_where_images_were_expected_are_refused(tmp_path, idx_file):
    idx_file(tmp_path / "a.gz", np.zeros(5))
    with pytest.raises(DataError, match="not an IDX file of bytes in 3 dimensions"):
        read_idx(tmp_path / "a.gz", num_dims=3)


def test_a_changed_or_missing_byte_is_refused_or_changes_nothing(tmp_path, idx_file):
    path = tmp_path / "labels.gz"
    idx_file(path, np.arange(30) % 10)
    content, whole = path.read_bytes(), read_idx(path, 1)
    for damaged in (*flip_bytes(content), *cut_off(content)):
        path.write_bytes(damaged)
        with suppress(DataError):
            assert torch.equal(read_idx(path, 1), whole)
    path.write_bytes(content[:-4])
    with pytest.raises(DataError, match="cannot be read as gzip .*; the file is damaged, fetch it"):
        read_idx(path, 1)
