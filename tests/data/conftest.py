import gzip
import socket
import struct

import numpy as np
import pytest


def write_idx(path, array):
    """Write an array of bytes as a gzipped IDX file."""
    array = np.asarray(array, dtype=np.uint8)
    header = struct.pack(f">HBB{array.ndim}I", 0, 8, array.ndim, *array.shape)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(header + array.tobytes()))


@pytest.fixture
def idx_file():
    return write_idx


@pytest.fixture(autouse=True)
def no_network_and_no_data_of_the_user(monkeypatch, tmp_path):
    """Every test starts with an empty cache, without a data folder, and cannot connect."""

    def refuse(*args, **options):
        raise AssertionError("a test tried to use the network")

    monkeypatch.setattr(socket, "create_connection", refuse)
    monkeypatch.delenv("HARDSTEP_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
