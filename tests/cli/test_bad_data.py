"""Data files at fault: one sentence that names the file and the place, and exit code 2."""

import gzip

import numpy as np
import pytest

from hardstep.data import SST2_SMOLLM2
from tests.cli.program import hardstep
from tests.data.test_features import write_features

ROWS = [f"2020-01-{1 + i // 24:02} {i % 24:02}:00:00,{i}.0\n" for i in range(400)]
TABLE = "date,OT\n" + "".join(ROWS)
OWN = """
from torch import nn
from hardstep.data import {loader}
from hardstep.tasks import Task
from hardstep.training import Metric

def data(seed):
    return {call}

mse = nn.functional.mse_loss
task = Task("own", "own", data=data, model=lambda: nn.Linear(8, 2), loss_fn=mse,
            metric=Metric("mse", mse), steps=1)
"""
FORECAST = 'forecasting(read_column("load.csv", "load"), (20, 10, 10), 8, 2, "load")'


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (TABLE.replace("OT", "temperature"), "has no column 'OT'; there is date, temperature"),
        (TABLE.replace(",7.0", ",seven"), "line 9, column OT: 'seven' is not a number"),
        (TABLE.replace(",7.0", ","), "line 9, column OT is empty; fill the gap"),
        (
            TABLE.replace(ROWS[7], ""),
            "line 9, column date: 2020-01-01 08:00:00 comes 2:00:00",
        ),
        (TABLE, "etth1: 400 values are fewer than the 14,400 of the three parts"),
    ],
    ids=["column", "text", "gap", "missing row", "too few rows"],
)
def test_a_table_at_fault_ends_training(tmp_path, monkeypatch, text, message):
    monkeypatch.setenv("HARDSTEP_DATA", str(tmp_path))
    (tmp_path / "etth1").mkdir()
    (tmp_path / "etth1" / "ETTh1.csv.gz").write_bytes(gzip.compress(text.encode()))
    done = hardstep("train", "etth1", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert message in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("loader", "call", "text", "message"),
    [
        ("forecasting, read_column", FORECAST, "load\n" + "1\n" * 40, "all 20 values for training"),
        ("forecasting, read_column", FORECAST, "load\n1\n2\n", "2 values are fewer than the 40"),
        ("read_sentences", 'read_sentences("load.csv")', "text\tclass\ngood\t1\n\nfine\t1\n",
         "load.csv: a classifier needs sentences of both classes, and all 2 are"),
        ("read_sentences", 'read_sentences("load.csv")', "text\tclass\ncaf\xe9\t1\n",
         "load.csv is not UTF-8 text, at byte 14"),
    ],
    ids=["constant", "few rows", "one class", "encoding"],
)  # fmt: skip
def test_files_of_a_task_of_ones_own_end_training(tmp_path, loader, call, text, message):
    (tmp_path / "load.csv").write_bytes(text.encode("latin-1"))
    (tmp_path / "own.py").write_text(OWN.format(loader=loader, call=call))
    done = hardstep("train", "own.py:task", cwd=tmp_path)
    assert done.returncode == 2
    assert message in done.stderr
    assert done.stderr.count("\n") == 1


def test_features_of_another_width_end_training(tmp_path, monkeypatch):
    write_features(tmp_path, x_train=np.zeros((30, 768), np.float16))
    monkeypatch.setenv("HARDSTEP_DATA", str(tmp_path))
    done = hardstep("train", "head-int8", cwd=tmp_path)
    assert done.returncode == 2
    assert "x_train has shape (30, 768), and the head takes 384 numbers" in done.stderr
    assert done.stderr.count("\n") == 1


def test_states_of_another_width_end_training(tmp_path, monkeypatch):
    write_features(tmp_path, SST2_SMOLLM2, x_val=np.zeros((10, 384), np.float16))
    monkeypatch.setenv("HARDSTEP_DATA", str(tmp_path))
    done = hardstep("train", "head-binary", "--data", "sst2-smollm2", cwd=tmp_path)
    assert done.returncode == 2
    assert "x_val has shape (10, 384), and the head takes 576 numbers" in done.stderr
    assert done.stderr.count("\n") == 1


def test_missing_features_name_the_command_that_makes_them(tmp_path, monkeypatch):
    monkeypatch.setenv("HARDSTEP_DATA", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    done = hardstep("train", "head-binary", cwd=tmp_path)
    assert done.returncode == 2
    assert "python -m hardstep.data.sst2_features" in done.stderr
    done = hardstep("train", "head-binary", "--data", "sst2-smollm2", cwd=tmp_path)
    assert done.returncode == 2
    assert "python -m hardstep.frozen.smollm2" in done.stderr


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("sentence\tlabel\n\n\n", "sentences of both classes, and there are none"),
        ("sentence\tlabel\ngood\t1\n \t0\n", "line 3 is not a sentence, a tab and a class"),
        ("sentence\tlabel\ngood\t1\nfine\t1\n", "of both classes, and all 2 are of class 1"),
        ("sentence\tlabel\ncaf\xe9\t1\n", "is not UTF-8 text, at byte 18; save it as UTF-8"),
        ("sentence\tlabel\ngood\t1\nbad\t0\n", "none of the 2 words of these sentences occurs 2"),
    ],
    ids=["empty lines", "empty sentence", "one class", "encoding", "no word twice"],
)
def test_sentences_at_fault_end_training(tmp_path, monkeypatch, text, message):
    monkeypatch.setenv("HARDSTEP_DATA", str(tmp_path))
    (tmp_path / "sst2").mkdir()
    for name in ("train", "validation"):
        path = tmp_path / "sst2" / f"{name}.tsv.gz"
        path.write_bytes(gzip.compress(text.encode("latin-1")))
    done = hardstep("train", "sst2", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert message in done.stderr
    assert done.stderr.count("\n") == 1
