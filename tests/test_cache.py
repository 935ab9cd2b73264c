"""Compiled code on disk is loaded only if nobody else can have written it, and it is whole."""

import os
import stat
import warnings
from pathlib import Path

import pytest

from hardstep import _cache
from hardstep._cache import keep_code, read_code

CODE = b"machine code"
STRANGER = 4711
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files to another user")


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch):
    """The parent of a cache of its own; nothing was warned of yet."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    _cache._warn.cache_clear()
    return tmp_path


def kept():
    """The only entry."""
    keep_code("kernel", CODE)
    assert read_code("kernel") == CODE
    folder = Path(os.environ["XDG_CACHE_HOME"]) / "hardstep" / "kernels"
    (path,) = folder.iterdir()
    return path


def mode(path):
    return stat.S_IMODE(path.stat().st_mode)


def test_what_is_kept_is_read_again_under_its_key_only():
    path = kept()
    assert (read_code("kernel"), read_code("another")) == (CODE, None)
    keep_code("another", b"other code")
    path.write_bytes(next(p for p in path.parent.iterdir() if p != path).read_bytes())
    assert read_code("kernel") is None  # the other's entry under this one's name


def test_folder_and_entry_are_closed_to_others_whatever_the_umask():
    before = os.umask(0)
    try:
        path = kept()
    finally:
        os.umask(before)
    assert (mode(path.parent), mode(path)) == (0o700, 0o600)


def give_away(path, user=STRANGER):
    os.chown(path, user, user, follow_symlinks=False)


def be_link(path):
    path.rename(path.parent.parent / "elsewhere")
    path.symlink_to(path.parent.parent / "elsewhere")


SPOILED = {
    "empty": lambda path: path.write_bytes(b""),
    "shorter than a digest": lambda path: path.write_bytes(path.read_bytes()[:20]),
    "cut off": lambda path: path.write_bytes(path.read_bytes()[:-1]),
    "changed": lambda path: path.write_bytes(path.read_bytes()[:-1] + b"!"),
    "a link": be_link,
    "a link to nothing": lambda path: (path.unlink(), path.symlink_to("nothing")),
    "a link to itself": lambda path: (path.unlink(), path.symlink_to(path.name)),
    "a pipe": lambda path: (path.unlink(), os.mkfifo(path)),
    "under two names": lambda path: path.hardlink_to(path.rename(path.parent.parent / "other")),
    "writable by the group": lambda path: path.chmod(0o620),
    "writable by all": lambda path: path.chmod(0o602),
    "not readable": lambda path: (path.unlink(), path.touch(0o000)),
    "another user's": pytest.param(give_away, marks=as_root),
}


@pytest.mark.parametrize(
    "spoil",
    [v if hasattr(v, "marks") else pytest.param(v) for v in SPOILED.values()],
    ids=list(SPOILED),
)
def test_an_entry_that_is_not_ours_or_not_whole_is_dropped_and_made_again(spoil):
    path = kept()
    spoil(path)
    assert read_code("kernel") is None
    assert not os.path.lexists(path)
    assert kept() == path


def test_a_folder_in_the_place_of_an_entry_is_left_alone():
    path = kept()
    path.unlink()
    path.mkdir()
    assert read_code("kernel") is None
    keep_code("kernel", CODE)
    assert [*path.parent.iterdir()] == [path]


def test_a_folder_of_ours_that_was_open_is_closed_and_its_entries_are_kept():
    path = kept()
    for old in (0o755, 0o777):
        path.parent.chmod(old)
        assert read_code("kernel") == CODE
        assert mode(path.parent) == 0o700


def open_to_all(place, number=0o777):
    (place / "cache").mkdir()
    (place / "cache").chmod(number)


def belongs_to_another(place):
    (place / "cache" / "hardstep").mkdir(parents=True)
    give_away(place / "cache" / "hardstep")


def is_of_another(place):
    (place / "cache" / "hardstep" / "kernels").mkdir(parents=True, mode=0o700)
    give_away(place / "cache" / "hardstep" / "kernels")


def is_linked_by_another(place):
    """A link in a folder like /tmp, to a folder that is ours."""
    open_to_all(place, 0o1777)
    (place / "own").mkdir()
    (place / "cache" / "hardstep").symlink_to(place / "own")
    give_away(place / "cache" / "hardstep")


def leads_through_an_open_folder(place):
    (place / "open").mkdir()
    (place / "open").chmod(0o777)
    (place / "cache").symlink_to(place / "open")


UNTRUSTED = [
    pytest.param(open_to_all, "others can write to {}/cache", id="open to all"),
    pytest.param(lambda p: open_to_all(p, 0o775), "others can write to {}/cache", id="group"),
    pytest.param(leads_through_an_open_folder, "others can write to {}/open", id="open, linked"),
    *(
        pytest.param(make, f"{{}}/cache/hardstep{end} belongs to user 4711", id=name, marks=as_root)
        for make, end, name in [
            (belongs_to_another, "", "another's"),
            (is_of_another, "/kernels", "kernels of another's"),
            (is_linked_by_another, "", "another's link"),
        ]
    ),
]


@pytest.mark.parametrize(("make", "reason"), UNTRUSTED)
def test_a_place_that_others_can_change_is_not_used_and_one_warning_says_so(
    place, monkeypatch, make, reason
):
    monkeypatch.setattr(_cache, "_is_own_group", lambda gid: False)
    make(place)
    before = sorted(place.rglob("*"))
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        for _ in range(2):
            keep_code("kernel", CODE)
            assert read_code("kernel") is None
    assert [str(warning.message) for warning in said] == [
        "compiled code is not kept for the next run, because others could put theirs there: "
        f"{reason.format(place)}; set XDG_CACHE_HOME to a folder that only you can write to"
    ]
    files = [path for path in place.rglob("*") if path not in before and not path.is_dir()]
    assert files == []


def test_links_of_ours_and_folders_like_tmp_are_followed(place):
    open_to_all(place, 0o1777)
    (place / "own").mkdir()
    (place / "cache" / "hardstep").symlink_to("../own")
    keep_code("kernel", CODE)
    assert read_code("kernel") == CODE
    assert [path.name for path in (place / "own").iterdir()] == ["kernels"]
    (place / "own" / "kernels").rename(place / "moved")
    (place / "own" / "kernels").symlink_to("../moved")
    assert read_code("kernel") == CODE


def test_a_private_group_may_write(place, monkeypatch):
    assert _cache._is_own_group(STRANGER) is False
    open_to_all(place, 0o775)
    monkeypatch.setattr(_cache, "_is_own_group", lambda gid: True)
    assert kept()


@pytest.mark.parametrize("make", [Path.touch, lambda path: path.symlink_to(path)])
def test_a_place_that_is_no_folder_costs_nothing(place, make):
    make(place / "cache")
    keep_code("kernel", CODE)
    assert read_code("kernel") is None
