"""The log of a run is read back whole, or refused by its line."""

import json
from contextlib import ExitStack

import pytest

import hardstep
from hardstep.errors import DataError
from hardstep.training import Callback, JsonlLog, Validation
from hardstep.training.logs import read_log
from tests.damage import cut_off, flip_bytes, full_disk
from tests.training.small import batches, model, optimizer


class Listener(Callback):
    """Keeps what the run says."""

    def __init__(self):
        self.said = []

    def on_message(self, text):
        self.said.append(text)


def fit(folder, steps=4, resume=False, callbacks=()):
    net = model()
    logs = [JsonlLog(folder / "log.jsonl"), *callbacks]
    return hardstep.fit(
        net, batches(), Validation(batches(num=32), every=2), optimizer=optimizer(net),
        steps=steps, callbacks=logs, checkpoint=folder / "run.pt", resume=resume,
    )  # fmt: skip


@pytest.fixture
def log(tmp_path):
    fit(tmp_path)
    return tmp_path / "log.jsonl"


def rows(path):
    return [line.row for line in read_log(path)]


def test_no_changed_byte_is_accepted_and_a_cut_costs_its_own_line(log):
    content, whole = log.read_bytes(), rows(log)
    for damaged in flip_bytes(content, every=29):
        log.write_bytes(damaged)
        with pytest.raises(DataError, match=r"log.jsonl, line \d: .*; restore the log"):
            read_log(log)
    for damaged in cut_off(content, every=29):
        log.write_bytes(damaged)
        assert rows(log) == whole[: damaged.count(b"\n")]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"\xff", "not a JSON object"),
        (b"[" * 50_000, "not a JSON object"),
        (b"[1]", r"a line of a log is an object, this is \[1\]"),
        (b'{"event": "step"}', "its step must be a whole number >= 0, got None"),
        (b'{"event": "other", "step": 1}', "its event must be step or validation, got 'other'"),
        (b'{"event": "step", "step": 1, "loss": "x"}', "its loss must be a number or null, got"),
        (b'{"event": "validation", "step": -1}', "its step must be a whole number"),
    ],
)
def test_a_run_is_not_resumed_with_a_log_of_another_kind(log, line, reason):
    content = log.read_bytes()
    log.write_bytes(line + b"\n" + content)
    with pytest.raises(DataError, match=f"log.jsonl, line 1: {reason}.*; restore the log"):
        fit(log.parent, resume=True)
    assert log.read_bytes() == line + b"\n" + content
    log.unlink()  # as the sentence says
    fit(log.parent, resume=True)


def test_lines_from_before_there_were_checksums_are_kept(log):
    old = [{key: part for key, part in row.items() if key != "checksum"} for row in rows(log)]
    log.write_text("".join(json.dumps(row) + "\n" for row in old))
    listener = Listener()
    fit(log.parent, resume=True, callbacks=[listener])
    assert rows(log) == old
    assert listener.said == []


def test_a_log_that_lacks_steps_is_mentioned(log):
    lines = log.read_bytes().splitlines(keepends=True)
    log.write_bytes(b"".join(lines[2:]))
    listener = Listener()
    fit(log.parent, resume=True, callbacks=[listener])
    assert listener.said == [f"{log} lacks 2 of the 4 steps this run has taken"]


class FullFor(Listener):
    """The disk takes no more of the log from the second step to the fourth."""

    def __init__(self, log, stack):
        super().__init__()
        self.log, self.stack = log, stack

    def on_step(self, run, report):
        if run.step == 1:
            self.stack.enter_context(full_disk(self.log.stat().st_size + 100))
        if run.step == 4:
            self.stack.close()


def test_lines_that_a_full_disk_does_not_take_are_written_when_there_is_room(tmp_path):
    net = model()
    with ExitStack() as stack:
        disk = FullFor(tmp_path / "log.jsonl", stack)
        logs = [JsonlLog(disk.log), disk]
        hardstep.fit(net, batches(), optimizer=optimizer(net), steps=6, callbacks=logs)
    assert [row["step"] for row in rows(disk.log)] == [1, 2, 3, 4, 5, 6]
    assert disk.said == [f"{disk.log} cannot be written, and waits for room: File too large"]
