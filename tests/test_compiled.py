"""Functions that numba compiled are kept with our kernels, and nowhere else."""

import os
import pickle

import numba
import numpy as np
import pytest

from hardstep._compiled import jit


def double(x):
    return x + x


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "hardstep" / "kernels"


def hits(argument=1.0):
    """How many compiled functions a new process would find on disk."""
    function = jit(double)
    assert function(argument) == 2 * argument
    return sum(function.stats.cache_hits.values())


def test_a_function_is_compiled_once_for_each_type_and_found_again(folder):
    assert (hits(), hits()) == (0, 1)
    assert (hits(1), hits(1), hits()) == (0, 1, 1)
    assert len([*folder.iterdir()]) == 2
    values = np.arange(3.0)
    assert (jit(double)(values) == 2 * values).all()
    assert (jit(double)(values) == 2 * values).all()


def test_a_damaged_function_is_compiled_again(folder):
    hits()
    (path,) = folder.iterdir()
    whole = path.read_bytes()
    for damaged in (b"", whole[:-9], b"?" + whole[1:]):
        path.write_bytes(damaged)
        assert (hits(), hits()) == (0, 1)


class Planted:
    """Makes a folder when it is unpickled."""

    def __init__(self, place):
        self.place = str(place)

    def __reduce__(self):
        return os.mkdir, (self.place,)


def test_what_lies_where_numba_keeps_its_own_is_not_run(tmp_path, monkeypatch):
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path / "numba"))
    numba.njit(cache=True)(double)(1.0)  # fills numba's cache under the same names
    found = [path for path in (tmp_path / "numba").rglob("*") if path.is_file()]
    assert found
    for path in found:
        path.write_bytes(pickle.dumps(Planted(tmp_path / "it ran")))
    assert (hits(), hits()) == (0, 1)
    assert not (tmp_path / "it ran").exists()


def test_without_its_source_a_function_is_not_kept(folder, monkeypatch):
    monkeypatch.setattr("pathlib.Path.read_bytes", lambda path: (path / "none").open())
    assert (hits(), hits()) == (0, 0)
    assert not folder.exists()
