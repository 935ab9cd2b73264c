"""The page beside the paper: records are found, differences judged, gaps shown."""

import pytest
from benchmarks.pages import paper, printed

SETTING = {**paper.DEFAULTS, "files": ["some"], "seeds": 5}


def line(text, ours, **setting):
    return paper.Line("a", "a", text, ours, {**SETTING, **setting})


@pytest.mark.parametrize(
    ("text", "figure"),
    [
        ("93.0 ± 0.2", (93.0, 0.2, 5)),
        ("~12", (12.0, None, 5)),
        ("3e-7", (3e-7, None, 5)),
    ],
)
def test_a_printed_figure_is_read(text, figure):
    assert printed.parse(text, seeds=5) == figure


def test_every_printed_figure_can_be_read_and_every_claim_has_its_lines():
    names = {}
    for table in printed.read()["table"]:
        names[table["label"]] = [row["name"] for row in table["rows"]]
        assert len(set(names[table["label"]])) == len(table["rows"]), table["label"]
        for row in table["rows"]:
            assert set(row) <= {"name", "printed", "where", "millions", *paper.INHERITED}
            if "printed" in row:
                assert printed.parse(row["printed"], seeds=5).mean >= 0
    for claim in printed.read()["claim"]:
        for label, name in (claim["first"], claim["second"]):
            assert name in names[label]


def test_fields_inside_objects_parts_of_texts_and_missing_fields_are_compared():
    record = {"budget": {"axis": "steps"}, "settings": "LayerWise(rank=4), Biased()", "seed": 42}
    for where in (
        {"budget.axis": "steps", "seed": 42},
        {"settings": "~rank=4"},
        {"settings": ["~LayerWise", "~Biased"]},
        {"study": ""},
    ):
        assert paper.matches(record, where)
    for where in ({"budget.axis": "evals"}, {"settings": ["~LayerWise", "~Haar"]}, {"study": "x"}):
        assert not paper.matches(record, where)


def test_a_difference_is_in_bold_beyond_chance_and_rounding_only():
    ours = printed.Figure(94.0, 0.2, 5)
    assert line("93.0 ± 0.2", ours).difference == "**+1.0**"
    assert line("93.8 ± 0.2", ours).difference == "+0.2"  # twice the standard error is 0.25
    assert line("93.8 ± 0.01", printed.Figure(94.0, 0.01, 5)).difference == "**+0.2**"
    assert line("93.9 ± 0.0", printed.Figure(93.95, 0.001, 5)).difference == "+0.0"
    assert line("93.0", ours).difference == "+1.0"
    assert line("", ours).difference == line("93.0 ± 0.2", None).difference == paper.NONE


def test_records_are_grouped_by_steps_and_the_newest_of_a_seed_counts(monkeypatch):
    runs = [(3180, 1, 0.9), (3180, 2, 0.8), (600, 1, 0.5), (3180, 1, 0.7)]
    records = tuple({"steps": n, "seed": seed, "test": value} for n, seed, value in runs)
    monkeypatch.setattr(paper, "find_stems", lambda patterns: ["some"])
    monkeypatch.setattr(paper, "read", lambda stem: records)
    found = paper.collect({**SETTING, "steps": 3180}, {})
    assert list(found) == [3180, 600]
    assert found[3180] == pytest.approx((75.0, 7.0711, 2), abs=1e-4)
    assert found[600] == (50.0, None, 1)
    assert [f.seeds for f in paper.collect(SETTING, {}).values()] == [2]
    table = {"steps": 3180, "rows": [{"name": "a", "printed": "80.0 ± 1.0"}]}
    shown = [one.shown for one in paper.lines_of(table)]
    assert shown == ["a", "a, 600 of 3,180 steps"]


def test_a_curve_is_read_at_the_nearest_look_within_a_tenth():
    record = {"curve": {"steps": [26, 52, 78, 104], "value": [0.1, 0.2, 0.3, 0.4]}}
    found = [paper.measure(record, f"curve {step}") for step in (20, 50, 80, 100, 400)]
    assert found == [None, 0.2, 0.3, 0.4, None]


def test_clauses_that_hold_after_some_steps_and_proven_ones_are_shares():
    record = {"marks": {"20": 10}, "clauses": 100, "falsified": 3, "proven": True}
    assert paper.measure(record, "mark 20") == 0.9
    assert paper.measure(record, "mark 40") is None
    assert paper.measure(record, "proven share") == 0.97
    assert paper.measure(record | {"proven": False, "falsified": None}, "proven share") is None


def test_a_claim_holds_by_sign_and_size_and_a_level_one_by_being_level():
    def judge(said, found, spread=0.1):
        first = line(f"{50 + said} ± {spread}", printed.Figure(50 + found, 0.1, 5))
        return paper._compare(first, line(f"50 ± {spread}", printed.Figure(50.0, 0.1, 5)), {})[2]

    assert judge(10.0, 8.0) == "holds"
    assert judge(10.0, 2.0) == "holds in part"
    assert judge(10.0, -2.0) == "**does not hold**"
    assert judge(0.5, 0.1, spread=1.0) == "holds"
    assert judge(0.5, 0.5, spread=1.0) == "**does not hold**"
    assert paper._compare(line("50.0", None), line("40.0", None), {}) == ["+10.0", "–", "–"]
