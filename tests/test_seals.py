"""Checksums: what they cover, and that other readers do not mind them."""

import io
import json
import zipfile

import pytest
import torch

from hardstep._seals import (
    MARK,
    NAME,
    is_archive,
    seal_archive,
    seal_json,
    take_checksum,
    verify_archive,
)
from hardstep.errors import DataError
from tests.damage import cut_off, flip_bytes

ROW = {"step": 3, "loss": 0.25, "note": 'ä "quoted", {x}', "none": None, "date": "2026-01-01"}


def read(content):
    """What a JSON text says, or why it is refused."""
    try:
        text = content.decode()
        value = json.loads(text)
    except ValueError:
        return "no JSON"
    return take_checksum(text, value) or value


@pytest.mark.parametrize("indent", [None, 2])
def test_a_sealed_object_reads_back_and_every_changed_byte_is_noticed(indent):
    sealed = seal_json(json.dumps(ROW, indent=indent, ensure_ascii=False)).encode()
    assert list(json.loads(sealed)) == [MARK, *ROW, NAME]
    assert read(sealed) == ROW
    assert read(sealed + b"\n") == ROW
    for damaged in (*flip_bytes(sealed), *cut_off(sealed)):
        found = read(damaged)
        assert found == ROW or isinstance(found, str)  # space between members may be other space
        assert found != ROW or damaged.split() == sealed.split()


@pytest.mark.parametrize("indent", [None, 2])
def test_members_that_are_cut_out_are_noticed(indent):
    sealed = seal_json(json.dumps(ROW, indent=indent, ensure_ascii=False)).encode()
    read_differently = []
    for start in range(1, len(sealed) - 1):
        for end in range(start + 1, len(sealed)):
            found = read(sealed[:start] + sealed[end:])
            # What has lost all of its members is refused for that.
            if found != ROW and not isinstance(found, str) and found.keys() & ROW.keys():
                read_differently.append(found)
    assert not read_differently


def test_what_has_no_checksum_is_left_as_it_is():
    for value in (ROW, {}, [1], 3, None, {"commit": "90f2c5d1e60a71b8"}):
        assert read(json.dumps(value).encode()) == value


def archive(sealed=True):
    stream = io.BytesIO()
    torch.save({"weights": torch.arange(5.0), "step": 3}, stream)
    if sealed:
        seal_archive(stream)
    return stream.getvalue()


def load(content):
    """What an archive holds; None if it is refused."""
    stream = io.BytesIO(content)
    try:
        return torch.load(verify_archive(stream), weights_only=True) if is_archive(stream) else None
    except (DataError, RuntimeError):  # torch's own: a part is missing
        return None


def is_accepted(content):
    return load(content) is not None


def test_a_sealed_archive_is_one_to_torch_and_to_zipfile(tmp_path):
    path = tmp_path / "sealed.pt"
    path.write_bytes(archive())
    for mapped in (False, True):
        loaded = torch.load(path, weights_only=True, mmap=mapped)
        assert loaded["step"] == 3
        assert torch.equal(loaded["weights"], torch.arange(5.0))
    with zipfile.ZipFile(path) as packed:
        assert packed.testzip() is None
        assert packed.comment.startswith(b"hardstep checksum ")


def test_every_changed_or_missing_byte_of_a_sealed_archive_is_noticed():
    content = archive()
    assert is_accepted(content)
    assert not any(map(is_accepted, flip_bytes(content)))
    assert not any(map(is_accepted, cut_off(content)))


def test_without_a_checksum_an_accepted_archive_says_the_same():
    content = archive(sealed=False)
    assert is_accepted(content)
    assert not any(map(is_accepted, cut_off(content)))
    accepted = [found for found in map(load, flip_bytes(content, every=3)) if found is not None]
    assert accepted  # dates and padding are nobody's concern
    for found in accepted:
        assert found["step"] == 3
        assert torch.equal(found["weights"], torch.arange(5.0))
