import gzip

import numpy as np
import pytest

from hardstep.data import read_idx
from hardstep.errors import DataError


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
