"""What `evaluate` takes and how it says what it does not."""

import io
import json
import math
import pickle

import numpy as np
import pytest
import torch

from hardstep.cli.evaluate import run_evaluate
from hardstep.cli.options import EvaluateOptions
from hardstep.errors import CheckpointError
from hardstep.training import checkpoints
from tests.cli.program import hardstep


def test_evaluate_gives_the_recorded_accuracy_again(finished):
    folder, done = finished
    again = hardstep("evaluate", folder / "checkpoint.pt", "--json")
    assert again.returncode == 0, again.stderr
    recorded, result = json.loads(done.stdout), json.loads(again.stdout)
    assert result["test_accuracy"] == recorded["test_accuracy"]
    assert result["valid_accuracy"] == recorded["valid_accuracy"]
    text = hardstep("evaluate", folder / "checkpoint.pt").stdout
    assert f"{100 * recorded['test_accuracy']:.1f} %" in text


def test_a_folder_stands_for_its_checkpoint_and_weights_are_of_a_step(finished, capsys):
    folder, _ = finished
    assert run_evaluate(EvaluateOptions(folder / "checkpoint.pt")) == 0
    said = capsys.readouterr().out
    assert said.splitlines()[1].endswith(("(weights of step 2)", "(weights of step 3)"))
    assert run_evaluate(EvaluateOptions(folder)) == 0
    assert capsys.readouterr().out == said
    with pytest.raises(CheckpointError, match=r"no checkpoint at .*/checkpoint\.pt$"):
        run_evaluate(EvaluateOptions(folder.parent))


@pytest.mark.parametrize("kind", ["cut off", "empty", "text", "array", "saved", "pickled"])
def test_what_is_no_checkpoint_is_one_sentence_of_ours(finished, tmp_path, kind, recwarn):
    path, stream = tmp_path / "file.pt", io.BytesIO()
    if kind == "array":
        np.save(stream, np.zeros(3))
    if kind == "saved":
        torch.save(EvaluateOptions(path), stream)
    if kind == "pickled":
        pickle.dump({"step": 1}, stream)
    whole = (finished[0] / "checkpoint.pt").read_bytes()
    path.write_bytes({"cut off": whole[:900], "text": b"text\n"}.get(kind, stream.getvalue()))
    with pytest.raises(CheckpointError) as refused:
        run_evaluate(EvaluateOptions(path))
    assert str(refused.value) == (
        f"{path} ({path.stat().st_size:,} bytes) cannot be read as a checkpoint: it was cut off, "
        "or is another kind of file; name the checkpoint.pt of a run"
    )
    assert [str(warning) for warning in recwarn] == []


META = {
    "it does not say its task": {"task": None},
    "it says task 3": {"task": 3},
    "it says seed nan": {"seed": math.nan},
    "it says steps -1": {"steps": -1},
    "it does not say its data": {"data": None},
}


@pytest.mark.parametrize("sentence", META)
def test_what_is_not_of_train_is_one_sentence(finished, tmp_path, sentence):
    saved = checkpoints.load(finished[0] / "checkpoint.pt")
    checkpoints.save(tmp_path / "checkpoint.pt", saved | {"meta": saved["meta"] | META[sentence]})
    for typed in (("evaluate", tmp_path), ("train", "mlp", "--out", tmp_path, "--resume")):
        refused = hardstep(*typed)
        assert refused.returncode == 2
        assert refused.stderr == (
            f"hardstep: {tmp_path / 'checkpoint.pt'} was not written by `hardstep train`: "
            f"{sentence}\n"
        )


@pytest.mark.parametrize("meta", [{"seed": -1}, {"seed": 2**70}, {"note": torch.zeros(3)}])
def test_odd_meta_data_are_no_traceback(finished, tmp_path, meta):
    saved = checkpoints.load(finished[0] / "checkpoint.pt")
    checkpoints.save(tmp_path / "checkpoint.pt", saved | {"meta": saved["meta"] | meta})
    assert hardstep("evaluate", tmp_path, "--json").returncode in (0, 2)
