import gzip
import json
import multiprocessing
from contextlib import suppress

import pytest

from hardstep.bench import SCHEMA, append, load
from hardstep.errors import DataError
from tests.damage import cut_off, flip_bytes, full_disk


def run(seed=0, **changes):
    curve = {"value": [0.1, 0.5], "steps": [1, 2], "evaluations": [10, 20],
             "seconds": [0.5, 1.0], "cpu_seconds": [0.9, 1.8]}  # fmt: skip
    record = {"task": "snn", "data": "digits", "method": "polystep", "seed": seed,
              "budget": {"axis": "steps", "amount": 2}, "steps": 2, "evaluations": 20,
              "seconds": 1.0, "test": 0.5, "curve": curve, "test_reads": 1}  # fmt: skip
    return record | changes


def test_what_is_appended_is_loaded(tmp_path):
    path = tmp_path / "new" / "runs.jsonl"
    for seed in range(3):
        append(path, run(seed))
    loaded = load(path)
    assert [r["seed"] for r in loaded.records] == [0, 1, 2]
    assert all(r["schema"] == SCHEMA for r in loaded.records)
    assert loaded.skipped == []
    assert load(tmp_path / "none.jsonl") == ([], [])


def many(path, first):
    for seed in range(first, first + 50):
        append(path, run(seed, note="x" * 5000))


def test_two_processes_may_write_one_file(tmp_path):
    path = tmp_path / "runs.jsonl"
    context = multiprocessing.get_context("spawn")
    processes = [context.Process(target=many, args=(path, first)) for first in (0, 1000)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(60)
        assert process.exitcode == 0
    loaded = load(path)
    assert loaded.skipped == []
    assert {r["seed"] for r in loaded.records} == {*range(50), *range(1000, 1050)}


def test_a_line_cut_off_costs_itself_only(tmp_path):
    path = tmp_path / "runs.jsonl"
    append(path, run(0))
    with path.open("a") as stream:
        stream.write(json.dumps(run(1))[:40])
    before = path.read_bytes()
    append(path, run(2))
    assert path.read_bytes().startswith(before)
    loaded = load(path)
    assert [r["seed"] for r in loaded.records] == [0, 2]
    (sentence,) = loaded.skipped
    assert "line 2" in sentence
    assert "cut off" in sentence


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"schema": 99}, "schema 99, this version reads 1"),
        ({"test_reads": 2}, "read 2 times"),
        ({"test_reads": None}, "read None times"),
        ({"test_reads": True}, "read True times"),
        ({"test_reads": 0}, "its test set was read 0 times, and it has a test score"),
        ({"budget": None}, "its budget is None, so it is not known what was equal"),
        ({"budget": {"axis": "watts", "amount": 1}}, "got 1.0 'watts'"),
        ({"seconds": "x"}, "its seconds are 'x', not a finite number"),
        ({"seconds": None}, "its seconds are None, not a finite number"),
        ({"steps": -1}, "its steps are -1, not a finite number"),
        ({"study": 3}, "study is not a name but 3"),
        ({"task": 3}, "task is not a name but 3"),
        ({"seed": "zero"}, "its seed is not a whole number but 'zero'"),
        ({"options": [1]}, "its options are not named: [1]"),
        ({"test": "high"}, "its test score is 'high', not a finite number"),
        ({"metric": {}}, "its metric has no name: {}"),
        ({"metric": "accuracy"}, "its metric has no name: 'accuracy'"),
        ({"evaluations": 19}, "its curve ends at 20 evaluations, the run at 19"),
        ({"curve": run()["curve"] | {"steps": [1, None]}}, "steps of its curve are not finite"),
        ({"curve": run()["curve"] | {"value": 0.5}}, "value of its curve is not a list"),
        ({"curve": {"value": [1]}}, "disagree"),
        ({"curve": run()["curve"] | {"steps": [2, 1]}}, "steps of its curve run backwards"),
        ({"curve": []}, "no values"),
    ],
)
def test_what_is_not_a_record_is_named_by_line_and_skipped(tmp_path, changes, reason):
    path = tmp_path / "runs.jsonl"
    append(path, run(0))
    with path.open("a") as stream:
        stream.write(json.dumps({"schema": SCHEMA, **run(1), **changes}) + "\n")
    before = path.read_bytes()
    loaded = load(path)
    assert len(loaded.records) == 1
    assert reason in loaded.skipped[0]
    assert "line 2" in loaded.skipped[0]
    assert path.read_bytes() == before


def test_a_test_set_that_was_read_without_a_score_is_refused(tmp_path):
    record = run()
    del record["test"]
    with pytest.raises(DataError, match="was read 1 times, and it has no test score"):
        append(tmp_path / "runs.jsonl", record | {"valid": 0.5})
    with pytest.raises(DataError, match="it has neither a test nor a validation score"):
        append(tmp_path / "runs.jsonl", record | {"test_reads": 0})
    append(tmp_path / "runs.jsonl", record | {"valid": 0.5, "test_reads": 0})
    append(tmp_path / "runs.jsonl", record | {"test": None})  # it diverged
    assert len(load(tmp_path / "runs.jsonl").records) == 2


def pack(path):
    """As `gzip -n` does, beside or instead of the file."""
    packed = path.with_name(f"{path.name}.gz")
    packed.write_bytes(gzip.compress(path.read_bytes(), mtime=0))
    path.unlink()
    return packed


def test_packed_records_are_read_alone_beside_the_file_and_in_a_folder(tmp_path):
    path = tmp_path / "runs.jsonl"
    for seed in (0, 1):
        append(path, run(seed))
    packed = pack(path)
    for name in (packed, path, tmp_path):  # the file need not be there
        assert [r["seed"] for r in load(name).records] == [0, 1]
    append(path, run(2))
    append(tmp_path / "a.jsonl", run(9))
    with path.open("a") as stream:
        stream.write("{\n")
    assert [r["seed"] for r in load(packed).records] == [0, 1]
    assert [r["seed"] for r in load(path).records] == [0, 1, 2]  # the packed ones are older
    assert [r["seed"] for r in load(tmp_path).records] == [9, 0, 1, 2]
    assert load(tmp_path).skipped[0].startswith(f"{path}, line 2: ")


def test_nothing_is_appended_to_a_packed_file(tmp_path):
    append(tmp_path / "runs.jsonl", run())
    packed = pack(tmp_path / "runs.jsonl")
    before = packed.read_bytes()
    with pytest.raises(DataError, match=r"runs.jsonl.gz is packed, .*; name runs.jsonl, with"):
        append(packed, run(1))
    assert packed.read_bytes() == before


@pytest.mark.parametrize("damage", ["cut off", "changed", "header", "no gzip", "empty"])
def test_a_damaged_packed_file_is_refused_in_one_sentence(tmp_path, damage):
    path = tmp_path / "runs.jsonl"
    append(path, run(0))
    packed = pack(path)
    content = packed.read_bytes()
    packed.write_bytes({
        "cut off": content[:-20],
        "changed": content[:60] + bytes([content[60] ^ 255]) + content[61:],
        "header": content[:10] + b"\xff" + content[11:],
        "no gzip": b'{"schema": 1}\n',
        "empty": b"",
    }[damage])  # fmt: skip
    with pytest.raises(DataError, match=r"runs.jsonl.gz is damaged and cannot be unpacked: "):
        load(path)


def test_a_run_without_a_field_is_not_recorded(tmp_path):
    record = run()
    del record["seed"]
    with pytest.raises(DataError, match="seed is missing"):
        append(tmp_path / "runs.jsonl", record)
    assert not (tmp_path / "runs.jsonl").exists()


def test_a_changed_byte_costs_its_line_or_nothing(tmp_path):
    path = tmp_path / "runs.jsonl"
    for seed in (0, 1):
        append(path, run(seed))
    content, (first, second) = path.read_bytes(), load(path).records
    for damaged in flip_bytes(content, every=7):
        path.write_bytes(damaged)
        loaded = load(path)
        assert all(record in (first, second) for record in loaded.records)
        assert loaded.skipped or loaded.records == [first, second]


def test_lines_from_before_there_were_checksums_are_read(tmp_path):
    path = tmp_path / "runs.jsonl"
    path.write_text(json.dumps({"schema": SCHEMA, **run(0)}) + "\n")
    append(path, run(1))
    assert [record["seed"] for record in load(path).records] == [0, 1]
    assert not any("checksum" in record for record in load(path).records)


def test_a_changed_byte_of_a_packed_file_is_refused_or_changes_nothing(tmp_path):
    append(tmp_path / "runs.jsonl", run(0))
    packed = pack(tmp_path / "runs.jsonl")
    content, whole = packed.read_bytes(), load(packed)
    for damaged in (*flip_bytes(content, every=5), *cut_off(content, every=9)):
        packed.write_bytes(damaged)
        with suppress(DataError):
            assert load(packed) == whole


def test_a_full_disk_is_one_sentence_and_the_next_run_is_recorded(tmp_path):
    path = tmp_path / "runs.jsonl"
    append(path, run(0))
    with full_disk(path.stat().st_size + 50), pytest.raises(DataError, match=r"cannot be written"):
        append(path, run(1))
    append(path, run(2))
    assert [record["seed"] for record in load(path).records] == [0, 2]
