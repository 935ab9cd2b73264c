"""The pages that show our records: what they say is what was recorded."""

import pytest
from benchmarks.maxsat.__main__ import load as maxsat_records
from benchmarks.pages import marked, results
from benchmarks.step.records import RECORDS, load


def test_readme_and_results_say_what_the_records_say():
    for path, text in results.pages().items():
        assert path.read_text() == text, f"renew {path.name}: python -m benchmarks.pages.results"


def test_records_of_other_benchmarks_are_read_packed():
    assert load(RECORDS)
    assert maxsat_records()


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
