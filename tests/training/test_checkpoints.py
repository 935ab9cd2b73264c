import os
import stat

import pytest
import torch

from hardstep._files import write_atomically
from hardstep.errors import CheckpointError
from hardstep.training import checkpoints


def test_a_checkpoint_reads_back_with_weights_only(tmp_path):
    path = tmp_path / "deep" / "run.pt"
    checkpoints.save(path, {"step": 3, "weights": torch.arange(3.0)})
    content = checkpoints.load(path)
    assert content["step"] == 3
    assert torch.equal(content["weights"], torch.arange(3.0))


def test_a_failed_save_leaves_the_old_file_and_no_debris(tmp_path):
    path = tmp_path / "run.pt"
    checkpoints.save(path, {"step": 1})
    with pytest.raises(Exception, match="pickle|local object"):
        checkpoints.save(path, {"bad": lambda: 0})
    assert checkpoints.load(path)["step"] == 1
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
def test_a_truncated_or_damaged_file_is_refused_by_name(tmp_path, content):
    path = tmp_path / "run.pt"
    checkpoints.save(path, {"weights": torch.zeros(1000)})
    path.write_bytes(path.read_bytes()[:2000] if content is None else content)
    with pytest.raises(CheckpointError, match="cannot read checkpoint .*run.pt"):
        checkpoints.load(path)


def test_a_missing_or_foreign_file_is_refused(tmp_path):
    with pytest.raises(CheckpointError, match="no checkpoint at"):
        checkpoints.load(tmp_path / "none.pt")
    torch.save({"model": 1}, tmp_path / "other.pt")
    with pytest.raises(CheckpointError, match="not a checkpoint of hardstep"):
        checkpoints.load(tmp_path / "other.pt")
