import hashlib
import urllib.error
import urllib.request

import pytest

from hardstep._files import cache_folder
from hardstep.data import Archive, download, locate
from hardstep.errors import DataError


@pytest.fixture
def mirror(tmp_path):
    """An archive whose mirror is a local folder with both of its files."""
    source = tmp_path / "mirror"
    source.mkdir()
    contents = {"a.gz": b"first", "b.gz": b"second"}
    for name, content in contents.items():
        (source / name).write_bytes(content)
    sums = {name: hashlib.sha256(content).hexdigest() for name, content in contents.items()}
    return Archive("toy", source.as_uri(), sums)


def fill(folder, archive):
    folder.mkdir(parents=True)
    for name in archive.checksums:
        (folder / name).write_bytes(b"local")


def test_the_cache_follows_xdg_and_falls_back_to_the_home_folder(monkeypatch, tmp_path):
    assert cache_folder() == tmp_path / "cache" / "hardstep"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert cache_folder() == tmp_path / "home" / ".cache" / "hardstep"


def test_the_data_folder_comes_before_the_cache(monkeypatch, tmp_path, mirror):
    fill(cache_folder() / "toy", mirror)
    assert locate(mirror) == cache_folder() / "toy"
    fill(tmp_path / "data" / "toy", mirror)
    monkeypatch.setenv("HARDSTEP_DATA", str(tmp_path / "data"))
    assert locate(mirror) == tmp_path / "data" / "toy"


def test_an_incomplete_data_folder_is_passed_over(monkeypatch, tmp_path, mirror):
    fill(tmp_path / "data" / "toy", mirror)
    (tmp_path / "data" / "toy" / "b.gz").unlink()
    monkeypatch.setenv("HARDSTEP_DATA", str(tmp_path / "data"))
    assert locate(mirror) == cache_folder() / "toy"


def test_missing_files_are_fetched_into_the_cache_and_nothing_else_is_left(mirror):
    folder = locate(mirror)
    assert folder == cache_folder() / "toy"
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == {
        "a.gz": b"first",
        "b.gz": b"second",
    }


def test_files_already_there_are_not_fetched_again(mirror):
    folder = cache_folder() / "toy"
    folder.mkdir(parents=True)
    (folder / "a.gz").write_bytes(b"kept")
    locate(mirror)
    assert (folder / "a.gz").read_bytes() == b"kept"


def test_a_file_with_another_checksum_is_not_kept(tmp_path, mirror):
    target = tmp_path / "target" / "a.gz"
    with pytest.raises(DataError, match=r"a\.gz: SHA-256 is .*, expected 00ff"):
        download(f"{mirror.mirror}/a.gz", target, "00ff")
    assert not target.exists()


def test_a_failure_says_what_was_looked_for_and_where_and_what_to_do(monkeypatch, mirror, tmp_path):
    def unreachable(url, timeout):
        raise urllib.error.URLError("no route")

    monkeypatch.setattr(urllib.request, "urlopen", unreachable)
    monkeypatch.setenv("HARDSTEP_DATA", str(tmp_path / "data"))
    with pytest.raises(DataError) as failure:
        locate(mirror)
    message = str(failure.value)
    assert message.startswith("toy: looked for a.gz, b.gz in")
    assert str(tmp_path / "data" / "toy") in message
    assert str(cache_folder() / "toy") in message
    assert "no route" in message
    assert "set HARDSTEP_DATA" in message
