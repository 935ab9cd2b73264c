"""What a report says, without a browser; see test_report_browser.py for what its script does."""

import json
import re

import pytest

from hardstep._pages import element, embed_json
from hardstep.bench import append
from hardstep.bench.report import render, scales
from hardstep.bench.report.figures import best_so_far
from hardstep.bench.summary import summarize
from hardstep.cli.files import read_records
from hardstep.cli.report import ReportOptions, run_report
from hardstep.errors import ConfigError, DataError

MSE = {"name": "MSE", "higher_is_better": False, "percent": False}


def run(method="polystep", seed=0, test=0.5, axis="steps", amount=100.0, **changes):
    """A record; a change to None leaves the field out."""
    curve = {"value": [0.1, 0.4, 0.3], "steps": [1, 50, 100], "evaluations": [10, 500, 1000],
             "seconds": [0.5, 1.0, 2.0], "cpu_seconds": [0.9, 1.8, 3.6]}  # fmt: skip
    record = {"schema": 1, "task": "snn", "data": "digits", "method": method, "seed": seed,
              "budget": {"axis": axis, "amount": amount}, "options": {}, "steps": 100,
              "evaluations": 1000, "seconds": 2.0, "cpu_seconds": 3.6, "valid": 0.4, "test": test,
              "test_reads": 1, "curve": curve} | changes  # fmt: skip
    if test is None:
        record["test_reads"] = 0
    return {name: value for name, value in record.items() if value is not None}


def runs(method, tests, **changes):
    return [run(method, seed, test, **changes) for seed, test in enumerate(tests)]


def visible(page):
    """The text of a page without its style and scripts."""
    body = re.sub(r"<(style|script).*?</\1>", "", page, flags=re.DOTALL)
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", body))


def test_a_row_has_mean_and_sample_deviation_over_seeds_and_rows_are_best_first():
    summary = summarize([*runs("spsa", [0.2, 0.4]), *runs("polystep", [0.5, 0.6, 0.7])])
    ((ours, theirs),) = (table.rows for table in summary.tables)
    assert (ours.label, ours.seeds, theirs.label) == ("polystep", (0, 1, 2), "spsa")
    assert ours.mean("test") == pytest.approx((60.0, 10.0))
    assert theirs.mean("test") == pytest.approx((30.0, 200**0.5))
    assert (theirs.cost("evaluations"), theirs.cost("peak_memory_bytes")) == (1000, None)
    assert "60.00 ± 10.00" in visible(render(summary))


def test_a_margin_is_over_common_seeds_with_p_and_its_floor():
    summary = summarize([*runs("polystep", [0.6, 0.7, 0.8]), *runs("spsa", [0.5, 0.4])])
    against = summary.tables[0].rows[1].against
    assert against.seeds == (0, 1)
    assert against.mean == pytest.approx(20.0)  # points
    assert (against.test.p_value, against.test.floor) == (0.5, 0.5)
    text = visible(render(summary))
    assert "+20.00" in text
    assert "0.5 (0.5)" in text


def test_wins_ties_and_losses_are_counted_per_axis_and_baseline():
    records = runs("adam", [0.9, 0.9], axis="time")
    for axis, theirs in (("steps", [0.4, 0.5]), ("evals", [0.4, 0.7]), ("time", [0.6, 0.7])):
        records += runs("polystep", [0.5, 0.6], axis=axis) + runs("spsa", theirs, axis=axis)
    summary = summarize(records)
    assert summary.verdicts("steps") == {"spsa": {"win": 1}}
    assert summary.verdicts("evals") == {"spsa": {"tie": 1}}
    assert summary.verdicts("time") == {"adam": {"loss": 1}, "spsa": {"loss": 1}}
    page = render(summary)
    assert "4 comparisons were made; p-values are not corrected" in visible(page)
    for verdict in ("win", "tie", "loss"):  # all written alike
        assert re.search(rf'<td class="number" data-value="[-\d]+">{verdict}</td>', page)


def test_where_lower_is_better_the_smaller_score_wins_and_stands_first():
    records = [*runs("polystep", [1.0, 2.0], metric=MSE), *runs("spsa", [3.0, 5.0], metric=MSE)]
    (table,) = summarize(records).tables
    assert [row.label for row in table.rows] == ["polystep", "spsa"]
    assert table.rows[1].against.verdict == "win"
    assert table.rows[1].against.mean == pytest.approx(2.5)
    assert "1.500 ± 0.707" in visible(render(summarize(records)))


def test_budgets_data_and_metrics_are_never_mixed_in_a_table():
    records = [run(), run(amount=200.0), run(axis="time"), run(data="mnist"), run(metric=MSE)]
    assert [table.number for table in summarize(records).tables] == [1, 2, 3, 4, 5]


def test_another_reference_turns_the_margin():
    records = [*runs("polystep", [0.6, 0.7]), *runs("spsa", [0.5, 0.4])]
    row = summarize(records, "spsa").tables[0].rows[0]
    assert row.method == "polystep"
    assert row.against.verdict == "loss"
    with pytest.raises(ConfigError, match="no run is of method 'spsaa'; did you mean 'spsa'"):
        summarize(records, "spsaa")


def test_configurations_of_a_method_are_separate_rows_and_repeats_count_once():
    records = [run(test=0.5), run(test=0.7), run(test=0.6, options={"rank": 4, "temperature": 1})]
    records.append(run(seed=1, test=0.8, options={"rank": 4, "temperature": 1}))
    summary = summarize([*records, run("spsa", 1, 0.1)])
    rows = {row.label: row.mean("test")[0] for row in summary.tables[0].rows}
    assert rows == {
        "polystep (default)": 70.0,
        "polystep (rank=4, temperature=1)": pytest.approx(70.0),
        "spsa": 10.0,
    }
    assert summary.repeated == 1
    assert summary.tables[0].rows[-1].against.mean == pytest.approx(70.0)  # of two seeds' 80 - 10
    assert "margins are of the one with most seeds" in visible(render(summary))


def test_sweeps_are_counted_and_stay_out_of_tables():
    sweep = [run("spsa", 100, None, stage=1, test_reads=0, options={"sigma": s}) for s in (1, 2)]
    summary = summarize([*runs("polystep", [0.5]), *sweep, run("spsa", 100, None, test_reads=0)])
    assert [row.label for row in summary.tables[0].rows] == ["polystep"]
    assert len(summary.tuning) == 3
    text = visible(render(summary))
    assert "3 tuned settings on validation" in text
    assert "spsa: 3 runs of 3 configurations, seeds 100" in text


def test_an_ablation_has_a_dot_per_seed_and_a_mark_at_the_mean_and_no_verdict():
    records = [*runs("polystep", [0.5, 0.6]), *runs("spsa", [0.1, 0.2])]
    for rank, scores in ((16, [0.2, 0.4]), (2, [0.6, 0.8, 1.0])):
        records += runs("polystep", scores, study="rank", variant=f"rank {rank}")
    summary = summarize(records)
    (study,) = summary.studies
    assert [row.label for row in study.rows] == ["rank 2", "rank 16"]
    assert study.rows[0].mean("test")[0] == pytest.approx(80.0)
    page = render(summary)
    assert page.count("<circle") == 5
    assert page.count('class="mean"') == 2
    assert summary.verdicts("steps") == {"spsa": {"win": 1}}
    axis = scales.linear([20.0, 40.0, 60.0, 80.0, 100.0])
    share = 100 * (80.0 - axis["low"]) / (axis["high"] - axis["low"])
    assert f'x1="{share:.2f}%" x2="{share:.2f}%" y1="3" y2="19" class="mean"' in page


def test_an_ablation_without_test_scores_shows_validation():
    summary = summarize([run(test=None, valid=0.25, test_reads=0, study="rank", variant="2")])
    assert summary.tuning == ()
    assert summary.studies[0].split == "valid"
    text = visible(render(summary))
    assert "validation accuracy" in text
    assert "25.00" in text


def test_a_curve_is_the_best_so_far_until_its_last_validation():
    record = run()
    curve = best_so_far(record)
    assert curve["value"] == [10.0, 40.0, 40.0]
    assert curve["evaluations"] == [10, 500, 1000]
    record["curve"]["value"] = [2.0, float("nan"), 1.5]
    curve = best_so_far(record | {"metric": MSE})
    assert curve["value"] == [2.0, 1.5]
    assert curve["seconds"] == [0.5, 2.0]


@pytest.mark.parametrize(
    ("ticks", "expected"),
    [
        (scales.linear_ticks(8.2, 97.0), [20, 40, 60, 80]),
        (scales.linear_ticks(0.301, 0.352), [0.31, 0.32, 0.33, 0.34, 0.35]),
        (scales.log_ticks(1, 1e5), [1, 10, 100, 1e3, 1e4, 1e5]),
        (scales.log_ticks(1250, 50_000), [2e3, 5e3, 1e4, 2e4, 5e4]),
        (scales.log_ticks(0.1, 1e9), [0.1, 10, 1e3, 1e5, 1e7, 1e9]),
        (scales.log_ticks(0.012, 8), [0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5]),
        (scales.log_ticks(100, 140), [100, 110, 120, 130, 140]),
    ],
)
def test_ticks_are_round_numbers_inside_the_axis(ticks, expected):
    assert ticks == pytest.approx(expected)


def test_axes_hold_a_single_value_and_no_value():
    for axis in (scales.linear([3.0]), scales.logarithmic([3.0]), scales.logarithmic([0.0])):
        assert axis["low"] < axis["high"]
        assert axis["ticks"]
    assert [scales.label(tick) for tick in (0.05, 20, 5000, 2e6)] == ["0.05", "20", "5k", "2M"]


def test_text_of_records_is_never_markup():
    evil = "</script><script>alert(1)</script>"
    records = [
        run(task=evil, data="<b>", commit=evil, command=f"hardstep {evil}", options={evil: evil}),
        run("<i>&amp;", task=evil, data="<b>", metric=None),
        run(study=evil, variant=evil),
    ]
    page = render(summarize(records))
    assert "<script>alert" not in page
    assert "<b>&" not in page
    assert "<i>" not in page
    assert page.count("<script") == page.count("</script>") == 2
    data = re.search(r'id="data">(.*?)</script>', page, re.DOTALL)[1]
    assert not re.search("[<>&]", data)  # even "</script " or "<!--" would do
    assert "<i>&amp;" in json.loads(data)["series"]
    assert element("p", "a<b", title='"') == '<p title="&quot;">a&lt;b</p>'
    assert json.loads(embed_json("</script>&")) == "</script>&"


def test_the_page_needs_nothing_but_itself_and_forbids_the_rest():
    page = render(summarize(runs("polystep", [0.5, 0.6])))
    assert not re.search(r"https?://", page)
    assert not re.search(r'(src|href)="(?!#|data:,")', page)
    assert "@import" not in page
    assert "default-src 'none'" in page
    assert '<meta name="viewport" content="width=device-width, initial-scale=1">' in page
    assert page == render(summarize(runs("polystep", [0.5, 0.6])))


def test_sources_have_distinct_values_of_options_seeds_versions_and_dates():
    where = {"hardstep": "0.1", "torch": "2.13", "python": "3.11", "machine": "EPYC",
             "command": "hardstep bench run a.toml", "commit": "abc123",
             "options": {"rank": 4}}  # fmt: skip
    records = [run(seed=seed, **where, date=f"2026-11-1{seed}") for seed in range(4)]
    records += [run("spsa", seed, date="2026-11-20") for seed in (0, 1, 5)]
    page = render(summarize(records))
    assert page.count("<dd>abc123</dd>") == 1
    assert "<dd>hardstep 0.1, torch 2.13, python 3.11</dd>" in page
    assert "<dd>2026-11-10 to 2026-11-20</dd>" in page
    assert "<td>0–3</td><td>rank = 4</td>" in page
    assert "<td>0–1, 5</td><td>defaults</td>" in page


def test_what_was_skipped_is_named_on_the_page():
    page = render(summarize([run()], skipped=["a.jsonl, line 2: its budget is None"]))
    assert "<li>a.jsonl, line 2: its budget is None</li>" in page
    assert "record skipped 1" in visible(page)


def test_the_command_reads_several_files_names_what_it_skips_and_writes_the_page(tmp_path, capsys):
    one, two, page = tmp_path / "one.jsonl", tmp_path / "two.jsonl", tmp_path / "new" / "page.html"
    append(one, run())
    append(two, run("spsa"))
    with two.open("a") as stream:
        stream.write(json.dumps(run("adam", test_reads=2)) + "\n" + '{"schema": 1, "ta\n')
    assert run_report(ReportOptions([one, two], page)) == 0
    captured = capsys.readouterr()
    assert "two.jsonl, line 2: its test set was read 2 times" in captured.err
    assert "two.jsonl, line 3: not a whole JSON object" in captured.err
    assert f"{page}: 2 runs, {page.stat().st_size / 1e3:,.0f} kB" in captured.out
    text = visible(page.read_text())
    assert "records skipped 2" in text
    assert "adam" not in text.split("What was skipped")[1].split("Results by task")[1]
    assert list(page.parent.iterdir()) == [page]


def test_a_folder_stands_for_the_records_in_it(tmp_path):
    append(tmp_path / "one.jsonl", run())
    append(tmp_path / "two.jsonl", run("spsa"))
    (tmp_path / "notes.txt").write_text("no records")
    summary = summarize(read_records(tmp_path).records)
    assert {row.method for row in summary.tables[0].rows} == {"polystep", "spsa"}
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match=r"there is no file \*\.jsonl in .*empty"):
        read_records(tmp_path / "empty")


def test_nothing_to_show_is_one_sentence(tmp_path):
    with pytest.raises(DataError, match=r"there is no file .*none.jsonl"):
        run_report(ReportOptions([tmp_path / "none.jsonl"]))
    bad = tmp_path / "bad.jsonl"
    bad.write_text('{"kind": "theory"}\n')
    with pytest.raises(DataError, match=r"no record can be shown, 1 were skipped.*schema None"):
        run_report(ReportOptions([bad], tmp_path / "page.html"))
    append(tmp_path / "good.jsonl", run())
    with pytest.raises(DataError, match="is a folder; name a file in it with --out"):
        run_report(ReportOptions([tmp_path / "good.jsonl"], tmp_path))
    assert not (tmp_path / "page.html").exists()


def test_a_run_that_diverged_is_behind_and_said_and_where_every_run_did_there_is_no_score():
    diverged = [record | {"test": None, "valid": None} for record in runs("mezo", [0.1, 0.2])]
    ours = runs("polystep", [0.6, 0.7])
    summary = summarize([*ours, run("mezo", 0, 0.4), diverged[1]])
    row = summary.tables[0].rows[1]
    assert (row.title, row.against.verdict) == ("mezo, 1 of 2 diverged", "win")
    assert row.mean("test") == (pytest.approx(40.0), 0.0)
    assert row.against.mean == pytest.approx(20.0)  # of the seed with a margin
    assert summary.verdicts("steps") == {"mezo": {"win": 1}}
    text = visible(render(summary))
    assert "1 of 2 diverged" in text
    assert "not computed" in text
    rows = summarize([*ours, *diverged]).tables[0].rows
    assert [row.title for row in rows] == ["polystep", "mezo, 2 of 2 diverged"]
    assert rows[1].mean("test") is None
    assert "2 of 2 diverged" in visible(render(summarize(diverged, "mezo")))


def test_a_variant_whose_options_were_changed_is_not_averaged_with_what_it_was():
    old = runs("mezo", [0.2, 0.4], study="s", variant="low", options={"mu": 0.01})
    new = runs("mezo", [0.8, 0.9], study="s", variant="low", options={"mu": 0.5})
    (table,) = summarize([*old, *new]).studies
    assert [row.label for row in table.rows] == ["mezo low (mu=0.01)", "mezo low (mu=0.5)"]
    assert [row.mean("test")[0] for row in table.rows] == pytest.approx([30.0, 85.0])
