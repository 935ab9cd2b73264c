"""What `evaluate` takes and how it says what it does not."""

import io

import numpy as np
import pytest
import torch

from hardstep.cli.evaluate import run_evaluate
from hardstep.cli.train import TrainOptions, run_train
from hardstep.errors import CheckpointError


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "mlp"
    assert run_train(TrainOptions("mlp", steps=2, out=folder)) == 0
    return folder


def test_a_folder_stands_for_its_checkpoint_and_weights_are_of_a_step(finished, capsys):
    assert run_evaluate(finished / "checkpoint.pt", as_json=False) == 0
    said = capsys.readouterr().out
    assert said.splitlines()[1].endswith(("(weights of step 1)", "(weights of step 2)"))
    assert run_evaluate(finished, as_json=False) == 0
    assert capsys.readouterr().out == said
    with pytest.raises(CheckpointError, match=r"no checkpoint at .*/checkpoint\.pt$"):
        run_evaluate(finished.parent, as_json=False)


@pytest.mark.parametrize("kind", ["cut off", "empty", "text", "array", "pickled"])
def test_what_is_no_checkpoint_is_one_sentence_of_ours(finished, tmp_path, kind):
    path, stream = tmp_path / "file.pt", io.BytesIO()
    if kind == "array":
        np.save(stream, np.zeros(3))
    if kind == "pickled":
        torch.save(TrainOptions("mlp"), stream)
    whole = (finished / "checkpoint.pt").read_bytes()
    path.write_bytes({"cut off": whole[:900], "text": b"text\n"}.get(kind, stream.getvalue()))
    with pytest.raises(CheckpointError) as refused:
        run_evaluate(path, as_json=False)
    assert str(refused.value) == (
        f"{path} ({path.stat().st_size:,} bytes) cannot be read as a checkpoint: it was cut off, "
        "or is another kind of file; name the checkpoint.pt of a run"
    )
