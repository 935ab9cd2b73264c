import resource

import pytest

from hardstep import _memory
from hardstep._memory import check_memory, format_bytes, free_bytes
from hardstep.errors import CapacityError


def test_some_memory_is_free_and_it_is_enough_for_little():
    assert 0 < free_bytes() < 1 << 60
    check_memory("two bytes", 2, "never")


def test_more_than_is_free_is_refused_with_both_numbers(monkeypatch):
    monkeypatch.setattr(_memory, "free_bytes", lambda: 1_500_000)
    with pytest.raises(CapacityError, match=r"things need about 2.00 GB of memory, and 1.50 MB"):
        check_memory("things", 2 * 10**9, "have fewer")


def test_a_container_counts_what_it_can_let_go(tmp_path, monkeypatch):
    monkeypatch.setattr(_memory, "_GROUP", tmp_path)
    (tmp_path / "memory.max").write_text("5000\n")
    (tmp_path / "memory.current").write_text("4000\n")
    (tmp_path / "memory.stat").write_text("anon 1\ninactive_file 300\n")
    assert free_bytes() == 1300
    (tmp_path / "memory.max").write_text("max\n")
    assert free_bytes() > 1300


def test_the_limit_of_the_process_counts(monkeypatch):
    monkeypatch.setattr(resource, "getrlimit", lambda _: (1 << 20, 1 << 20))
    assert free_bytes() == 0


def test_what_is_reserved_counts_for_the_limit_of_the_process_only(monkeypatch):
    monkeypatch.setattr(_memory, "_free_by_limit", lambda: 10**9)
    check_memory("things", 2, "have fewer", reserved=10**8)
    with pytest.raises(CapacityError, match=r"need about 2.00 GB of memory, and 1.00 GB"):
        check_memory("things", 2, "have fewer", reserved=2 * 10**9)
    monkeypatch.undo()
    check_memory("things", 2, "have fewer", reserved=10**15)


def test_bytes_come_in_the_unit_that_suits_them():
    assert [format_bytes(n) for n in (640, 12_500_000, 3 * 10**9)] == [
        "640 bytes",
        "12.50 MB",
        "3.00 GB",
    ]
