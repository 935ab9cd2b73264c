import os

import pytest


@pytest.fixture
def write(tmp_path, monkeypatch):
    """Writes files into the current folder, and each with a time of its own."""
    monkeypatch.chdir(tmp_path)
    times = iter(range(10**9, 2 * 10**9))

    def write(text, name="own.py"):
        path = tmp_path / name
        path.write_text(text)
        moment = next(times)
        os.utime(path, (moment, moment))
        return name

    return write
