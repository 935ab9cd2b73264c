"""Checkpoints: damage, foreign content and full disks are one sentence, and cost nothing else."""

import copy
import math
import os
import stat
from contextlib import ExitStack

import pytest
import torch

import hardstep
from hardstep._files import write_atomically
from hardstep.errors import CheckpointError
from hardstep.training import Callback, Checkpoint, Validation, checkpoints
from tests.damage import cut_off, flip_bytes, full_disk
from tests.training.small import batches, model, optimizer, weights

RUN = {"model": {"weight": torch.arange(3.0)}, "optimizer": {"step": 3}, "best_weights": {},
       "best": None, "history": [], "epoch": 0, "batch": 1, "seconds": 0.5}  # fmt: skip


def test_a_checkpoint_reads_back_with_weights_only(tmp_path):
    path = tmp_path / "deep" / "run.pt"
    checkpoints.save(path, RUN)
    for content in (checkpoints.load(path), torch.load(path, weights_only=True)):
        assert content["optimizer"]["step"] == 3
        assert torch.equal(content["model"]["weight"], torch.arange(3.0))


def test_one_from_before_there_were_checksums_is_read(tmp_path):
    torch.save({"format": checkpoints.FORMAT, **RUN}, tmp_path / "old.pt")
    assert checkpoints.load(tmp_path / "old.pt")["batch"] == 1


def test_a_failed_save_leaves_the_old_file_and_no_debris(tmp_path):
    path = tmp_path / "run.pt"
    checkpoints.save(path, RUN)
    with pytest.raises(Exception, match="pickle|local object"):
        checkpoints.save(path, {"bad": lambda: 0})
    with full_disk(), pytest.raises(CheckpointError) as refused:
        checkpoints.save(path, RUN | {"batch": 2})
    assert str(refused.value) == (
        f"checkpoint {path} cannot be saved: File too large; make room there and resume from the "
        "one saved before, or name another path"
    )
    assert checkpoints.load(path)["batch"] == 1
    assert [p.name for p in tmp_path.iterdir()] == ["run.pt"]


@pytest.mark.parametrize("umask", [0o022, 0o027])
def test_files_are_as_private_as_the_umask_says(tmp_path, umask):
    path, before = tmp_path / "page.html", os.umask(umask)
    try:
        with write_atomically(path) as temporary:
            temporary.write_text("all")
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == 0o666 & ~umask
    assert [p.name for p in tmp_path.iterdir()] == ["page.html"]


@pytest.mark.parametrize("content", [None, b"", b"not a checkpoint", b"PK\x03\x04 torn"])
def test_a_truncated_file_or_another_kind_is_refused_by_name(tmp_path, content):
    path = tmp_path / "run.pt"
    checkpoints.save(path, RUN)
    path.write_bytes(path.read_bytes()[:-50] if content is None else content)
    with pytest.raises(
        CheckpointError, match=r"run.pt \(.* bytes\) cannot be read as a checkpoint"
    ):
        checkpoints.load(path)


def test_no_changed_or_missing_byte_is_accepted(tmp_path):
    path = tmp_path / "run.pt"
    checkpoints.save(path, RUN)
    content = path.read_bytes()
    for damaged in (*flip_bytes(content, every=23), *cut_off(content, every=50)):
        path.write_bytes(damaged)
        with pytest.raises(CheckpointError, match=r"run.pt .*(is damaged: its checksum|cut off)"):
            checkpoints.load(path)


def test_a_missing_or_foreign_file_is_refused(tmp_path):
    with pytest.raises(CheckpointError, match="no checkpoint at"):
        checkpoints.load(tmp_path / "none.pt")
    torch.save({"model": 1}, tmp_path / "other.pt")
    with pytest.raises(CheckpointError, match="not a checkpoint of hardstep"):
        checkpoints.load(tmp_path / "other.pt")


def fit(path, resume=False, steps=4, **options):
    net = model()
    valid = Validation(batches(num=32), every=2)
    result = hardstep.fit(
        net, batches(), valid, optimizer=optimizer(net), steps=steps, checkpoint=path,
        resume=resume, **options,
    )  # fmt: skip
    return net, result


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """What a real run saves."""
    path = tmp_path_factory.mktemp("runs") / "run.pt"
    fit(path)
    return checkpoints.load(path)


NAMES = ["model", "optimizer", "best_weights", "best", "history", "epoch", "batch", "seconds"]
STATE = ["settings", "seed", "step", "evaluations", "coordinates", "previous_move", "rules",
         "potentials", "statistics", "subspace", "format"]  # fmt: skip
WRONG = ["text", math.nan, [[]], {1: 2}, torch.zeros(2, 7)]
KINDS = [
    *(((name,), None) for name in NAMES),
    *((("optimizer", name), None) for name in STATE),
    *(((name,), value) for name in (*NAMES, "meta", "stream") for value in WRONG),
    *((("optimizer", name), value) for name in STATE for value in WRONG),
    *(((name,), value) for name in ("epoch", "batch", "seconds") for value in (-1, 10**400)),
    *((("optimizer", name), value) for name in STATE[1:4] for value in (-1, 10**400)),
    *((("optimizer", name), {"a": "b"}) for name in ("rules", "subspace")),
    (("history", 0), [1, 2]),
    (("best",), [-1, 0.5, 10, 1.0]),
    (("optimizer", "rules", 0, "velocity"), None),
    (("optimizer", "rules", 0, "velocity"), torch.zeros(1)),
    (("model", "0.weight"), torch.zeros(9)),
    (("model", "0.weight"), torch.zeros(4, 3, dtype=torch.complex64)),
    (("model", "0.weight"), torch.zeros(4, 3).to_sparse()),
    (("best_weights", "0.weight"), torch.zeros(9)),
    (("best_weights", "0.weight"), None),
]


def test_what_lacks_parts_or_holds_others_is_one_sentence_or_the_same_run(
    tmp_path, saved, monkeypatch
):
    monkeypatch.setattr(os, "fsync", lambda file: None)  # nobody pulls the plug meanwhile
    path, (expected, _) = tmp_path / "run.pt", fit(tmp_path / "whole.pt")
    num_refused = 0
    for keys, value in KINDS:
        content = copy.deepcopy(saved)
        place = content
        for key in keys[:-1]:
            place = place[key]
        if value is None:
            del place[keys[-1]]
        else:
            place[keys[-1]] = value
        checkpoints.save(path, content)
        refusal = ""
        try:
            net, _ = fit(path, resume=True)
        except CheckpointError as error:
            refusal = str(error)
            num_refused += 1
        assert "\n" not in refusal
        assert len(refusal) < 600
        assert refusal or torch.equal(weights(net), weights(expected)), (keys, value)
    assert num_refused > 0.9 * len(KINDS)


def test_a_damaged_run_is_not_resumed(tmp_path):
    path = tmp_path / "run.pt"
    fit(path, steps=4)
    content = path.read_bytes()
    path.write_bytes(content.replace(b"velocity", b"velocitx"))
    with pytest.raises(CheckpointError, match="damaged: its checksum does not match; restore it"):
        fit(path, resume=True)


@pytest.fixture
def stack():
    with ExitStack() as stack:
        yield stack


class DiskOf(Callback):
    """Full from one step on until another."""

    def __init__(self, first, last, stack):
        self.first, self.last, self.stack, self.said = first, last, stack, []

    def on_step(self, run, report):
        if run.step == self.first:
            self.stack.enter_context(full_disk())
        if run.step == self.last + 1:
            self.stack.close()

    def on_message(self, text):
        self.said.append(text)


def test_a_run_survives_a_full_disk_and_saves_when_there_is_room(tmp_path, stack):
    path, disk = tmp_path / "run.pt", DiskOf(3, 6, stack)
    net, result = fit(Checkpoint(path, every_seconds=0), steps=8, callbacks=[disk])
    assert result.steps == 8
    assert len(disk.said) == 2
    assert disk.said[0].startswith(
        f"The run continues and will try to save again: checkpoint {path}"
    )
    assert disk.said[1] == "Saved again, after step 7"
    assert checkpoints.load(path)["optimizer"]["step"] == 8
    whole, _ = fit(tmp_path / "whole.pt", steps=8)
    assert torch.equal(weights(net), weights(whole))


def test_the_last_save_on_a_full_disk_raises_and_the_one_before_is_resumed(tmp_path, stack):
    path, disk = tmp_path / "run.pt", DiskOf(3, 100, stack)
    with pytest.raises(CheckpointError, match=r"run.pt cannot be saved: File too large"):
        fit(Checkpoint(path, every_seconds=0), steps=8, callbacks=[disk])
    stack.close()
    assert checkpoints.load(path)["optimizer"]["step"] == 2
    net, _ = fit(path, resume=True, steps=8)
    whole, _ = fit(tmp_path / "whole.pt", steps=8)
    assert torch.equal(weights(net), weights(whole))
    assert {p.name for p in tmp_path.iterdir()} == {"run.pt", "whole.pt"}


def test_a_failed_save_is_a_warning_where_no_callback_listens(tmp_path):
    with (
        full_disk(),
        pytest.warns(RuntimeWarning, match="will try to save again"),
        pytest.raises(CheckpointError),
    ):
        fit(tmp_path / "run.pt", steps=2)
