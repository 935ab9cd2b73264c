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


def test_a_table_that_nobody_makes_is_refused_and_others_are_written_between_their_comments(page):
    marked = "before\n<!-- table: {} -->\nold\n<!-- end of table -->\nafter\n"
    renewed = page.readme_tables.renewed(marked.format("tally"), {"tally": "| new |"})
    assert renewed == marked.format("tally").replace("old", "| new |")
    with pytest.raises(KeyError, match="taly"):
        page.readme_tables.renewed(marked.format("taly"), {"tally": "| new |"})
