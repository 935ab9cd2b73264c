"""Where commands may write: looked at before the work, refused in one sentence."""

import pytest

from hardstep._files import check_folder, check_writable
from hardstep.cli import diagnose, report, theory, train
from hardstep.cli.diagnose import DiagnoseOptions, run_diagnose
from hardstep.errors import DataError


@pytest.mark.parametrize("check", [check_folder, check_writable])
def test_a_place_is_looked_at_without_a_trace(tmp_path, check):
    check(tmp_path / "new" / "folder", "--out")
    assert list(tmp_path.iterdir()) == []


def test_a_place_in_a_folder_that_cannot_be_written_to_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("os.access", lambda *_: False)  # the superuser may write anywhere
    with pytest.raises(DataError, match="cannot be written: .* is read-only; .* with --out"):
        train.run_train(train.TrainOptions("mlp", out=tmp_path / "a" / "run"))


def test_a_picture_of_a_diagnosis_makes_its_folder(tmp_path, capsys):
    picture = tmp_path / "new" / "folder" / "flat.png"
    assert run_diagnose(DiagnoseOptions("mlp", picture=picture, json=True)) == 0
    assert picture.stat().st_size > 5000
    assert capsys.readouterr().out.startswith('{"here"')


def test_no_diagnosis_is_made_for_what_is_no_picture(tmp_path, monkeypatch):
    monkeypatch.setattr(diagnose, "diagnose", None)
    with pytest.raises(DataError, match="c.pgn does not end as a picture does; .* --picture"):
        run_diagnose(DiagnoseOptions("mlp", picture=tmp_path / "c.pgn"))


def test_no_check_is_run_for_a_file_that_cannot_be_written(tmp_path, monkeypatch):
    monkeypatch.setattr(theory, "judge", None)
    with pytest.raises(DataError, match="is a folder; name a file in it with --json"):
        theory.run_theory(theory.TheoryOptions(json=tmp_path))


@pytest.mark.parametrize("name", ["r.pdf", "r", "r.html.gz"])
def test_a_report_is_a_page_or_markdown(tmp_path, name):
    with pytest.raises(DataError, match=rf"{name} ends neither as .* in \.html, \.htm, \.md$"):
        report.run_report(report.ReportOptions([tmp_path / "runs.jsonl"], tmp_path / name))
