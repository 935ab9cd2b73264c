"""Rows and tables of records, as the terminal shows them, and the picture beside them."""

from hardstep.bench.report import write_comparison
from hardstep.bench.summary import summarize

from .test_report import MSE, run, runs


def test_the_table_names_its_axis_and_counts_comparisons():
    records = [*runs("a", [0.9, 0.91, 0.92]), *runs("b", [0.8] * 3), *runs("c", [0.95] * 3)]
    (table,) = summarize(records, "a").tables
    assert [row.label for row in table.rows] == ["c", "a", "b"]
    assert table.row("b").against.verdict == "win"
    assert table.row("c").against.verdict == "loss"
    shown = write_comparison(table, "a")
    assert shown.startswith("at equal steps")
    assert "2 comparisons" in shown
    assert "floor 0.25" in shown


def test_curves_of_a_metric_that_is_to_be_small_go_down(tmp_path, monkeypatch):
    from hardstep.bench import pictures

    drawn = []
    monkeypatch.setattr(pictures.pyplot, "close", drawn.append)
    curve = {"value": [3.0, None, 1.0, 2.0], "steps": [1, 2, 3, 4], "evaluations": [1, 2, 3, 4],
             "seconds": [1.0, 2.0, 3.0, 4.0]}  # fmt: skip
    record = run("a", 0, 1.5, metric=MSE, curve=curve)
    pictures.draw_curves(tmp_path / "c.png", "title", [record])
    panel = drawn[0].axes[0]
    assert panel.get_ylabel() == "best validation MSE so far"
    assert list(panel.lines[0].get_ydata()) == [3.0, 1.0, 1.0]
    assert list(panel.lines[0].get_xdata()) == [1, 3, 4]
    assert panel.lines[0].get_label() == "a (test 1.5)"
    pictures.pyplot.switch_backend("Agg")  # closes what was kept open
