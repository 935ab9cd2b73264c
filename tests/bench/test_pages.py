"""The pages that show our records: what they say is what was recorded."""

import importlib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def page(monkeypatch):
    """The script that renews them."""
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    return importlib.import_module("results_page")


def test_readme_and_results_say_what_the_records_say(page):
    for path, text in page.pages().items():
        assert path.read_text() == text, f"renew {path.name}: python benchmarks/results_page.py"


def test_what_stands_between_its_comments_is_written_anew_and_nothing_else(page):
    marked = (
        "before\n<!-- table: tally -->\n{}\n<!-- end of table -->\n"
        "takes <!-- figure: cost -->{}<!-- end of figure --> of it\n"
    )
    found = {"tally": "| new |", "cost": "3 to 8 s"}
    for old in ("old\nlines", "", "| new |"):
        renewed = page.marked.renewed(marked.format(old, old), found)
        assert renewed == marked.format(*found.values())


def test_a_part_that_nobody_makes_is_refused(page):
    for kind in ("table", "figure"):
        text = f"<!-- {kind}: taly --><!-- end of {kind} -->"
        with pytest.raises(KeyError, match="taly"):
            page.marked.renewed(text, {"tally": "| new |"})
