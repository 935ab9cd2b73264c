"""The report as Markdown."""

from hardstep.bench import append
from hardstep.bench.report import render_markdown
from hardstep.bench.summary import summarize
from hardstep.cli.report import ReportOptions, run_report

from .test_report import run, runs


def cells(page, first):
    """The cells of the row whose first one is that."""
    (row,) = [line for line in page.splitlines() if line.startswith(f"| {first} |")]
    return [cell.strip() for cell in row.strip("|").split("|")]


def test_a_table_says_scores_margins_and_costs_and_a_tally_counts_them():
    records = [*runs("polystep", [0.6, 0.8]), *runs("spsa", [0.5, 0.4])]
    page = render_markdown(summarize(records))
    ours, theirs = cells(page, "polystep"), [
        line for line in page.splitlines() if line.startswith("| spsa |")
    ]  # fmt: skip
    assert ours[1:3] == ["70.00 ± 14.14", "2"]
    assert "| spsa | 1 | 0 | 0 |" in theirs
    assert any("| +25.00 | 0.5 (0.5) | win |" in line for line in theirs)
    assert "## At equal steps: 1 comparisons" in page


def test_an_overview_has_a_line_per_task_and_marks_where_the_reference_is_not_ahead():
    records = [*runs("polystep", [0.6, 0.8]), *runs("spsa", [0.5, 0.4]), *runs("adam", [0.7, 0.9])]
    records += [*runs("polystep", [0.5, 0.5], task="moe"), *runs("spsa", [0.4, 0.6], task="moe")]
    records += runs("polystep", [0.9], task="mlp")  # compared with nothing
    page = render_markdown(summarize(records))
    assert "## Mean test scores at equal steps\n" in page
    assert "| task | steps | polystep | adam | spsa |" in page
    assert cells(page, "snn, digits") == ["snn, digits", "100", "70.0", "> 80.0", "45.0"]
    assert cells(page, "moe, digits") == ["moe, digits", "100", "50.0", "–", "= 50.0"]
    assert "mlp, digits" not in page


def test_ablations_stand_apart_and_sweeps_are_only_counted():
    records = [run(), run(stage=1, seed=9), run(study="solver", variant="greedy", test=0.25)]
    page = render_markdown(summarize(records))
    assert page.index("## Ablations") > page.index("## snn on digits")
    assert cells(page, "greedy")[1] == "25.00"
    assert "2 runs, and 1 of sweeps before them." in page


def test_names_from_records_open_no_tag_and_no_column():
    page = render_markdown(summarize([run(task="<b>|x", command="a <i>")]))
    assert "<b>" not in page
    assert "<i>" not in page


def test_the_name_of_the_file_decides(tmp_path, capsys):
    append(tmp_path / "runs.jsonl", run())
    for name, start in (("page.md", "# Results"), ("page.html", "<!doctype html>")):
        out = tmp_path / name
        assert run_report(ReportOptions([tmp_path / "runs.jsonl"], out)) == 0
        assert out.read_text().lower().startswith(start.lower())
    assert "page.md: 1 runs" in capsys.readouterr().out
