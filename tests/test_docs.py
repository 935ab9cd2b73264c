"""The documentation: its code runs, its links lead somewhere, and it reads as the house asks."""

import re
import sys
from dataclasses import fields
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace

import pytest

from hardstep.cli.commands import COMMANDS
from hardstep.tasks import BY_DATA
from tests import docs

PAGES = sorted(docs.DOCS.rglob("*.md"))
LINKING = [docs.ROOT / "README.md", *docs.ROOT.glob("[CS]*.md"), *PAGES]
LINKING += sorted((docs.ROOT / "src").rglob("README.md"))
LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")
OUTSIDE_THE_LAB = [path for path in PAGES if "lab" not in path.relative_to(docs.DOCS).parts]
OUTSIDE_THE_LAB.append(docs.ROOT / "README.md")


def name(path: Path) -> str:
    return str(path.relative_to(docs.ROOT))


@pytest.mark.parametrize("page", docs.USER_PAGES, ids=name)
def test_the_code_of_a_page_runs_as_written(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("MPLBACKEND", "Agg")
    languages = [block.language for block in docs.blocks(page)]
    assert "python" in languages or "sh" in languages
    try:
        docs.run_page(page, monkeypatch)
    finally:
        for file in tmp_path.glob("*.py"):
            sys.modules.pop(file.stem, None)


def test_what_a_page_shows_is_compared_with_what_is_printed():
    assert docs.is_alike("loss 2.12 after 3,168\n", "loss 2.2 after 3,168\n")
    assert not docs.is_alike("loss 2.12 after 3,168\n", "loss 2.12 after 4,000\n")
    assert not docs.is_alike("loss 2.12", "error 2.12")
    assert docs.is_alike("probes 90   0.38 ms\n", "probes 90  12 s\n")
    assert not docs.is_alike("probes 90  12 s", "probes 80  12 s")
    assert sum(bool(b.shown) for p in docs.USER_PAGES for b in docs.blocks(p)) >= 4


def test_every_block_says_what_it_is():
    for page in docs.USER_PAGES:
        unknown = {b.language for b in docs.blocks(page)} - {"python", "sh", "text", "toml"}
        assert not unknown, page


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub and mkdocs make them."""
    text = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)
    found = set()
    for heading in re.findall(r"^#+ (.*)$", text, re.MULTILINE):
        plain = re.sub(r"[^\w\- ]", "", heading.replace("`", "").lower())
        found.add(plain.strip().replace(" ", "-"))
    return found


@pytest.mark.parametrize("page", LINKING, ids=name)
def test_links_lead_somewhere(page):
    text = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)
    for link in LINK.findall(text):
        if re.match(r"[a-z]+:", link):
            continue  # the web is not asked in tests
        target, _, anchor = link.partition("#")
        path = (page.parent / target).resolve() if target else page
        assert path.exists(), f"{link} of {name(page)}"
        assert docs.ROOT in path.parents, f"{link} of {name(page)} leaves the repository"
        if anchor:
            assert anchor in anchors(path), f"{link} of {name(page)}"


def test_every_page_can_be_reached_from_the_first():
    seen, waiting = set(), [docs.DOCS / "index.md"]
    while waiting:
        page = waiting.pop()
        if page not in seen and page.suffix == ".md" and docs.DOCS in page.parents:
            seen.add(page)
            links = (link.partition("#")[0] for link in LINK.findall(page.read_text()))
            waiting += [(page.parent / link).resolve() for link in links if ":" not in link]
    assert seen == set(PAGES)


UNWANTED = {
    "a date": r"\b20\d\d-\d\d-\d\d\b",
    "a machine": r"\b(EPYC|Xeon|Ryzen|AVX-?512)\b",
    "the lab's diary": r"\b(by hand|not recorded|unrecorded)\b",
    "another word for baseline": r"\brivals?\b",
    "an old word": r"\b(anew|dearer|of one's own|goes on|is said)\b",
    "a goal of ours": r"\| (must|aim) \|",
}
BRITISH = re.compile(
    r"\b\w*(colour|favour|neighbour|behaviour|recenterd|learnt|(quant|optim|minim|normal|recogn)is(e|i)"
    r"|centre)\w*\b|\b(per cent|grey)\b",
    re.IGNORECASE,
)


@pytest.mark.parametrize("page", OUTSIDE_THE_LAB, ids=name)
def test_a_page_for_users_keeps_to_its_subject(page):
    for what, pattern in UNWANTED.items():
        found = re.search(pattern, page.read_text(), re.IGNORECASE)
        assert found is None, f"{what} in {name(page)}: {found[0]}"


def test_pages_and_code_are_spelled_in_american_english():
    paths = [*docs.ROOT.glob("*.md"), *(docs.ROOT / "docs").rglob("*.md")]
    for folder in ("src", "benchmarks", "examples"):
        paths += [*(docs.ROOT / folder).rglob("*.md"), *(docs.ROOT / folder).rglob("*.py")]
    wrong = {name(p): found[0] for p in paths if (found := BRITISH.search(p.read_text()))}
    assert not wrong


def test_every_room_of_the_package_has_its_reference():
    rooms = {path.parent.name for path in (docs.ROOT / "src" / "hardstep").glob("*/__init__.py")}
    pages = "".join(path.read_text() for path in docs.DOCS.glob("reference/*.md"))
    for room in rooms - {"cli"} | {"errors", "schedules"}:
        assert f"\n::: hardstep.{room}\n" in pages, room


def test_the_reference_of_the_command_line_has_every_option(monkeypatch):
    monkeypatch.syspath_prepend(docs.DOCS)
    place = SimpleNamespace(file=SimpleNamespace(src_uri="reference/command-line.md"))
    page = (docs.DOCS / "reference" / "command-line.md").read_text()
    shown = import_module("site_hooks").on_page_markdown(page, place)
    for command, (options, _) in COMMANDS.items():
        assert f"\n## hardstep {command}\n" in shown
        for field in fields(options):
            name = field.name.replace("_", "-")
            assert (
                f"`--{name}" in shown or f"`{name.upper()}" in shown or f"`[{name.upper()}" in shown
            )


def test_the_reference_of_the_command_line_names_every_task():
    page = (docs.DOCS / "reference" / "command-line.md").read_text()
    assert not [task for task in BY_DATA["digits"] | BY_DATA["mnist"] if f"`{task}`" not in page]


def test_the_readme_is_one_page_with_a_picture_and_a_table():
    text = (docs.ROOT / "README.md").read_text()
    assert len(text.split()) <= 700
    assert len(re.findall(r"^!\[", text, re.MULTILINE)) == 1
    assert len(re.findall(r"^\|(?: --- \|)+$", text, re.MULTILINE)) == 1


def test_advice_on_settings_is_short():
    assert len((docs.DOCS / "how-to" / "choose-settings.md").read_text().splitlines()) <= 60


def test_pictures_are_small():
    for picture in docs.DOCS.rglob("*.png"):
        assert picture.stat().st_size < 150_000, picture
