"""The pages that show our records: what they say is what was recorded."""

import json
from types import SimpleNamespace

import pytest
from benchmarks.maxsat import report as maxsat
from benchmarks.maxsat.__main__ import load as maxsat_records
from benchmarks.pages import edges, marked, results, theory
from benchmarks.runs import (
    digits_tuning,
    mnist_tuning,
    pictures_tuning,
    smollm2_logits,
    spiking_libraries,
    spiking_memory,
    worker_model,
)
from benchmarks.step import report as step
from benchmarks.step.records import RECORDS, load

from hardstep.bench.records import load as load_records
from hardstep.bench.summary import summarize


def test_readme_and_results_say_what_the_records_say():
    for path, text in results.pages().items():
        assert path.read_text() == text, f"renew {path.name}: python -m benchmarks.pages.results"


def test_the_readme_says_how_many_seeds_and_baselines_its_table_has():
    summary = summarize(load_records(results.RESULTS / "paper.jsonl").records)
    rows = [row for t in summary.tables if t.budget.axis == "steps" for row in t.rows]
    assert {len(row.seeds) for row in rows} == {3, 5}
    assert len({row.method for row in rows} - {"polystep", "adam"}) == 6
    page = " ".join((results.ROOT / "README.md").read_text().split())
    assert "Means of three to five seeds." in page
    assert "Best baseline: of six gradient-free methods" in page


def test_networks_of_spiking_libraries_were_recorded_with_the_losses_of_torch():
    tried = json.loads(spiking_libraries.RECORD.read_text())["networks"]
    for library, least in (("snntorch", 15), ("spikingjelly", 20)):
        found = {name: network["difference"] for name, network in tried[library].items()}
        assert len(found) >= least
        assert max(difference["float32"] for difference in found.values()) < 1e-5
        double = {name: difference["float64"] for name, difference in found.items()}
        refused = [name for name, number in double.items() if number is None]
        assert refused == (["linear, RLeaky"] if library == "snntorch" else [])
        assert max(number for number in double.values() if number is not None) < 1e-10
        assert all(network["altered"] > 0 for network in tried[library].values())


def test_the_language_model_was_recorded_with_the_logits_and_tokens_of_transformers():
    record = json.loads(smollm2_logits.RECORD.read_text())
    for found in (record["short"], record["long"]):
        assert found["difference"] < 1e-2 < found["largest"]
        assert found["same"] == found["tokens"] > 1_000
    assert record["tokens"]["same"] == record["tokens"]["sentences"] == 5_000
    assert record["model"]["sha256"] in record["made of"]
    assert record["features"]["difference"] < 1e-3


def test_the_formula_for_many_workers_agrees_with_the_simulation():
    for title, steps in worker_model.read_steps().items():
        for workers in worker_model.WORKERS:
            predicted, simulated = worker_model.compare(steps, workers)
            assert predicted == pytest.approx(simulated, rel=0.25), (title, workers)


OTHERS = [  # pages of docs/lab, and what makes their tables from other benchmarks' records
    ("performance.md", lambda: step.text(load(RECORDS))),
    ("maxsat.md", lambda: maxsat.text(maxsat_records())),
    ("theory.md", lambda: theory.text(json.loads(theory.RECORD.read_text()))),
    ("evaluation.md", spiking_memory.table),
    ("tuning.md", digits_tuning.table),
    ("tuning.md", mnist_tuning.table),
    ("tuning.md", lambda: pictures_tuning.table("csnn")),
    ("tuning.md", lambda: pictures_tuning.table("bcnn")),
]


@pytest.mark.parametrize(("page", "make"), OTHERS)
def test_pages_of_other_benchmarks_say_what_their_records_say(page, make):
    text = (results.ROOT / "docs" / "lab" / page).read_text()
    assert len(make().splitlines()) > 5
    assert _plain(make()) in _plain(text)


def _plain(text: str) -> str:
    """The same whether a table's second line is written wide or narrow."""
    return text.strip().replace(" --- ", "---")


def test_what_stands_between_its_comments_is_renewed_and_nothing_else():
    page = (
        "before\n<!-- table: tally -->\n{}\n<!-- end of table -->\n"
        "takes <!-- figure: cost -->{}<!-- end of figure --> of it\n"
    )
    found = {"tally": "| new |", "cost": "3 to 8 s"}
    for old in ("old\nlines", "", "| new |"):
        assert marked.renew(page.format(old, old), found) == page.format(*found.values())


def test_a_part_that_nobody_makes_is_refused():
    for kind in ("table", "figure"):
        text = f"<!-- {kind}: taly --><!-- end of {kind} -->"
        with pytest.raises(KeyError, match="taly"):
            marked.renew(text, {"tally": "| new |"})


def test_a_record_does_not_run_the_file_that_it_names(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own.py").write_text("open('it-ran', 'w')")
    run = {"options": {"step_radius": 1.0}, "budget": {"axis": "steps", "amount": 1}}
    row = SimpleNamespace(method="polystep", runs=[run])
    found = SimpleNamespace(
        task="own.py:own", data="own", budget=SimpleNamespace(axis="steps"), row=lambda method: row
    )
    assert "1 of 1" not in edges.table(SimpleNamespace(tables=[found]))
    assert not (tmp_path / "it-ran").exists()
