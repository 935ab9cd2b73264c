"""Rows and tables of records, as the terminal shows them, and the picture beside them."""

from hardstep.bench.report import write_comparison
from hardstep.bench.summary import summarize


def record(method, seed, test):
    return {"task": "mlp", "data": "digits", "budget": {"axis": "evals", "amount": 10},
            "method": method, "seed": seed, "test": test, "valid": test, "steps": 1,
            "evaluations": 10, "seconds": 1.0}  # fmt: skip


def test_the_table_names_its_axis_and_counts_comparisons():
    runs = [record("a", s, 0.9 + s / 100) for s in range(3)]
    runs += [record("b", s, 0.8) for s in range(3)] + [record("c", s, 0.95) for s in range(3)]
    (table,) = summarize(runs, "a").tables
    assert [row.label for row in table.rows] == ["c", "a", "b"]
    assert table.row("b").against.verdict == "win"
    assert table.row("c").against.verdict == "loss"
    shown = write_comparison(table, "a")
    assert shown.startswith("at equal evaluations")
    assert "2 comparisons" in shown
    assert "floor 0.25" in shown


def test_repeated_runs_count_once_and_configurations_apart():
    slow = [record("b", s, 0.5) | {"options": {"rate": 0.1}} for s in (0, 1)]
    fast = [record("b", s, 0.7) | {"options": {"rate": 0.2}} for s in (0, 1)]
    ours = [record("a", s, 0.6) for s in (0, 1)]
    (table,) = summarize([*ours, *slow, *slow, *fast], "a").tables
    assert [row.label for row in table.rows] == ["b (rate=0.2)", "a", "b (rate=0.1)"]
    assert [row.seeds for row in table.rows] == [(0, 1)] * 3
    assert [row.against and row.against.verdict for row in table.rows] == ["loss", None, "win"]


def test_curves_of_a_metric_that_is_to_be_small_go_down(tmp_path, monkeypatch):
    from hardstep.bench import pictures

    drawn = []
    monkeypatch.setattr(pictures.pyplot, "close", drawn.append)
    metric = {"name": "MSE", "higher_is_better": False, "percent": False}
    curve = {"value": [3.0, None, 1.0, 2.0], "steps": [1, 2, 3, 4], "evaluations": [1, 2, 3, 4],
             "seconds": [1.0, 2.0, 3.0, 4.0]}  # fmt: skip
    run = record("a", 0, 1.5) | {"metric": metric, "curve": curve}
    pictures.draw_curves(tmp_path / "c.png", "title", [run])
    panel = drawn[0].axes[0]
    assert panel.get_ylabel() == "best validation MSE so far"
    assert list(panel.lines[0].get_ydata()) == [3.0, 1.0, 1.0]
    assert list(panel.lines[0].get_xdata()) == [1, 3, 4]
    assert panel.lines[0].get_label() == "a (test 1.5)"
    pictures.pyplot.switch_backend("Agg")  # closes what was kept open
