"""What `compare` shows and leaves: the table while it runs, and the picture after."""

import re
import sys
from functools import partial
from io import StringIO
from pathlib import Path
from types import SimpleNamespace

import pytest
from rich.console import Console
from rich.live import Live

from hardstep import tasks
from hardstep._files import check_folder, check_writable
from hardstep.bench.axes import Budget
from hardstep.bench.methods import METHODS
from hardstep.bench.runs import Job, run_job
from hardstep.cli import compare
from hardstep.cli.compare import CompareOptions, run_compare
from hardstep.cli.compare_view import LiveTable
from hardstep.cli.diagnose import DiagnoseOptions, run_diagnose
from hardstep.errors import ConfigError, DataError
from tests.cli.test_compare import pretended
from tests.tasks.test_files import STAIRS

TASK = tasks.BY_DATA["digits"]["mlp"]
LARGE = {"steps": 166_950, "evaluations": 5_342_400, "seconds": 1234.5,
         "budget": {"axis": "evals", "amount": 5_342_400}}  # fmt: skip
NEARLY_ALL = f"{2 * len(METHODS) - 1} of {2 * len(METHODS)} runs"
USUAL = "runs/compare-mlp-digits-steps.png"


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    """Commands write to a folder of their own, and their runs take no time."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(compare, "run_job", lambda job, **_: pretended(job.method, job.seed))
    return tmp_path


@pytest.fixture
def plain(monkeypatch):
    """No matplotlib."""
    for name in ("matplotlib", "matplotlib.backend_bases", "hardstep.bench.pictures"):
        monkeypatch.setitem(sys.modules, name, None)


def options(**changes):
    return CompareOptions(
        **{"task": "mlp", "methods": "mezo,spsa", "match": "steps", "seeds": 1} | changes
    )


def files(folder):
    return sorted(str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file())


def shown(view, height=24):
    """What a terminal has on its screen."""
    stream = StringIO()
    console = Console(file=stream, force_terminal=True, width=80, height=height, color_system=None)
    with Live(view, console=console, auto_refresh=False) as live:
        stream.truncate(stream.seek(0))
        live.refresh()
        return stream.getvalue().rpartition("\x1b[2K")[2].splitlines()  # after what it erases


def crowded(**changes):
    """The moment before the last run of two seeds is over, at a large budget."""
    budget, last = Budget("evals", 5_342_400), list(METHODS)[-1]
    view = LiveTable(2 * len(METHODS))
    for seed in (0, 1):
        for method in METHODS:
            view.begin(Job("mlp", "digits", method, seed, budget))
            if (method, seed) != (last, 1):
                view.add(pretended(method, seed, **LARGE | {"test": 0.9 + 0.05 * seed} | changes))
    return view


def test_all_methods_and_two_seeds_fit_a_terminal_of_80_by_24():
    view = crowded()
    step_to(view, 131_250, evaluations=4_200_000)
    lines = shown(view)
    assert re.match(rf"{NEARLY_ALL}, \S+ m?s left; ", lines[0])
    assert lines[0].endswith("seed 1: 4,200,000 of 5,342,400")  # the unit is in the next line
    assert lines[1] == "at equal evaluations"
    assert {line.split()[0] for line in lines[3:]} == set(METHODS)
    assert not any(len(line) > 80 or "…" in line or "..." in line for line in lines)


def test_conclusions_wait_for_the_last_run(capsys):
    assert not any(" against " in line for line in shown(crowded(), height=100))
    assert run_compare(options(seeds=2, no_picture=True)) == 0
    assert "mezo against spsa: tie" in capsys.readouterr().out


def test_the_line_of_progress_is_there_on_a_terminal_too_low_for_the_table():
    lines = shown(crowded(), height=5)
    assert len(lines) == 5
    assert lines[0].startswith(NEARLY_ALL)


def test_a_row_too_wide_for_the_terminal_is_cut_and_takes_one_line():
    metric = {"name": "root mean squared error, scaled", "percent": False}
    lines = shown(crowded(metric=metric))
    assert len(lines) == 3 + len(METHODS)
    assert all(len(line) <= 80 for line in lines)


@pytest.mark.parametrize(
    ("axis", "amount", "spent"),
    [
        ("steps", 3, "3 of 3 steps"),
        ("evals", 7, "6 of 7 evaluations"),
        ("time", 0.3, r"\d+\.\d of 0\.3 wall-clock seconds"),
    ],
)
def test_the_line_moves_with_every_step_of_a_run(axis, amount, spent):
    view, job = LiveTable(2), Job("mlp", "digits", "mezo", 4, Budget(axis, amount))
    view.begin(job)
    assert view.progress == "0 of 2 runs, 0:00:00; mezo, seed 4: preparing"
    record = run_job(job, watching=[view])
    assert re.search(rf"^0 of 2 runs, \S+ m?s left; mezo, seed 4: {spent}$", view.progress)
    view.add(record)
    assert view.progress.startswith("1 of 2 runs")


def step_to(view, step, evaluations=0):
    optimizer = SimpleNamespace(evaluations=evaluations)
    run = SimpleNamespace(step=step, seconds=970.0, optimizer=optimizer, interactions=0)
    view.on_step(run, None)


def watch(monkeypatch, clock, **options):
    """A comparison of four runs of ten steps, and the seconds that its clock shows."""
    monkeypatch.setattr("hardstep.cli.compare_view.time.monotonic", lambda: clock[0])
    stream = StringIO()
    view = LiveTable(4, Console(file=stream, width=60, **options))
    view.begin(Job("mlp", "digits", "mezo", 4, Budget("steps", 10)))
    return view, stream


def test_the_time_left_counts_the_part_of_a_run_that_is_done(monkeypatch):
    clock = [0.0]
    view, _ = watch(monkeypatch, clock)
    assert view.progress == "0 of 4 runs, 0:00:00; mezo, seed 4: preparing"
    clock[0] = 100.0
    step_to(view, 5)
    assert view.progress == "0 of 4 runs, 12 min left; mezo, seed 4: 5 of 10 steps"
    view.add(pretended("mezo", 4))
    assert view.progress.startswith("1 of 4 runs, 5 min left")


@pytest.mark.parametrize("is_terminal", [False, True])
def test_where_there_is_no_terminal_a_line_comes_now_and_then(monkeypatch, is_terminal):
    clock = [0.0]
    view, stream = watch(monkeypatch, clock, force_terminal=is_terminal)
    for step, clock[0] in ((1, 1.0), (2, 11.0), (3, 12.0), (4, 25.0)):
        step_to(view, step)
    told = [line.rpartition(": ")[2] for line in stream.getvalue().splitlines()]
    assert told == ([] if is_terminal else ["2 of 10 steps", "4 of 10 steps"])


def test_the_plain_command_draws_a_picture_beside_what_train_writes(here, capsys):
    assert run_compare(options()) == 0
    assert files(here) == [USUAL]
    assert (here / USUAL).stat().st_size > 5000
    assert capsys.readouterr().err == f"curves on three axes: {USUAL}\n"


def test_a_picture_of_all_methods_names_them_within_its_edges(monkeypatch):
    from hardstep.bench import pictures

    drawn = []
    monkeypatch.setattr(pictures.pyplot, "close", drawn.append)
    assert run_compare(options(methods=",".join(METHODS), seeds=2)) == 0
    (legend,) = drawn[0].legends
    assert [text.get_text().split()[0] for text in legend.get_texts()] == list(METHODS)
    place = legend.get_window_extent()
    assert 0 < place.x0 < place.x1 < drawn[0].bbox.width
    pictures.pyplot.switch_backend("Agg")  # closes what was kept open


@pytest.mark.slow
def test_the_same_comparison_renews_its_picture(here):
    for changes in ({}, {"budget": float(TASK.steps)}, {"methods": "mezo, spsa"}, {"json": True}):
        assert run_compare(options(**changes)) == 0
    assert files(here) == [USUAL]


@pytest.mark.slow
def test_other_comparisons_leave_the_picture_alone(here):
    run_compare(options())
    before = (here / USUAL).read_bytes()
    others = ({"methods": "spsa,mezo"}, {"budget": 7.0}, {"seeds": 2}, {"options": ["mezo.mu=0.1"]})
    for changes in others:
        assert run_compare(options(**changes)) == 0
    assert (here / USUAL).read_bytes() == before
    assert files(here) == [*(USUAL.replace(".png", f"-{n}.png") for n in range(2, 6)), USUAL]


@pytest.mark.parametrize("content", [b"", b"somebody's notes"])
def test_a_file_that_compare_did_not_draw_is_left_alone(here, content):
    (here / "runs").mkdir()
    (here / USUAL).write_bytes(content)
    assert run_compare(options()) == 0
    assert (here / USUAL).read_bytes() == content
    assert files(here) == [USUAL.replace(".png", "-2.png"), USUAL]


def test_an_interrupted_comparison_leaves_the_picture_of_the_whole_alone(here, monkeypatch):
    run_compare(options())
    before = (here / USUAL).read_bytes()

    def interrupted(job, **_):
        if job.method == "spsa":
            raise KeyboardInterrupt
        return pretended(job.method)

    monkeypatch.setattr(compare, "run_job", interrupted)
    assert run_compare(options()) == 130
    assert (here / USUAL).read_bytes() == before
    assert files(here) == [USUAL.replace(".png", "-2.png"), USUAL]


def test_a_task_of_ones_own_has_a_picture_under_its_name(here):
    (here / "stairs.py").write_text(STAIRS)
    assert run_compare(options(task="stairs.py:sine")) == 0
    assert files(here) == ["runs/compare-stairs-sine-own-steps.png", "stairs.py"]


def test_there_is_a_way_to_have_none(here, capsys):
    assert run_compare(options(no_picture=True)) == 0
    assert files(here) == []
    assert capsys.readouterr().err == ""
    with pytest.raises(ConfigError, match="--picture c.png and --no-picture contradict each other"):
        run_compare(options(no_picture=True, picture=Path("c.png")))


@pytest.mark.usefixtures("plain")
@pytest.mark.parametrize("picture", [None, Path("c.png")])
def test_without_matplotlib_the_table_is_there_and_a_line_says_what_to_install(
    here, capsys, picture
):
    assert run_compare(options(picture=picture)) == 0
    said = capsys.readouterr()
    assert "mezo against spsa" in said.out
    assert said.err == "no picture: matplotlib is missing, pip install 'hardstep[plot]'\n"
    assert files(here) == []


def test_a_place_in_runs_that_cannot_be_written_is_refused_before_the_first_run(here, monkeypatch):
    monkeypatch.setattr(compare, "run_job", None)
    (here / "runs").touch()
    with pytest.raises(DataError, match="a file; name another with --picture, or draw none with"):
        run_compare(options())


@pytest.mark.usefixtures("plain")
def test_without_matplotlib_a_place_in_runs_need_not_be_writable(here):
    (here / "runs").touch()
    assert run_compare(options()) == 0


def test_a_picture_without_an_ending_is_checked_written_and_named_as_png(here, capsys):
    assert run_compare(options(picture=Path("new/pic"))) == 0
    assert files(here) == ["new/pic.png"]
    assert capsys.readouterr().err == "curves on three axes: new/pic.png\n"
    (here / "new" / "pic.png").unlink()
    (here / "new" / "pic.png").mkdir()
    for run, asked in ((run_compare, options), (run_diagnose, partial(DiagnoseOptions, "mlp"))):
        with pytest.raises(DataError, match=r"pic.png is a folder; name a file in it"):
            run(asked(picture=Path("new/pic")))
        with pytest.raises(DataError, match=r"new is a folder; name a file in it"):
            run(asked(picture=Path("new")))


@pytest.mark.parametrize("check", [check_folder, check_writable])
def test_a_place_is_looked_at_without_a_trace(tmp_path, check):
    check(tmp_path / "new" / "folder", "--out")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_a_picture_of_a_diagnosis_makes_its_folder(tmp_path, capsys):
    picture = tmp_path / "new" / "folder" / "flat.png"
    assert run_diagnose(DiagnoseOptions("mlp", picture=picture, json=True)) == 0
    assert picture.stat().st_size > 5000
    assert capsys.readouterr().out.startswith('{"here"')
