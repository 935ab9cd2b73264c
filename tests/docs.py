"""The pages: what is in them, and their blocks of code as a reader would run them."""

import re
import shlex
from contextlib import redirect_stdout
from dataclasses import replace
from importlib import import_module
from importlib.util import find_spec
from io import StringIO
from math import isclose
from pathlib import Path
from types import SimpleNamespace
from typing import NamedTuple

from hardstep.bench import suite
from hardstep.cli import commands as command

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
USER_PAGES = [DOCS / "tutorial.md", *sorted(DOCS.glob("how-to/*.md"))]
USER_PAGES += sorted(DOCS.glob("concepts/*.md"))
UNTESTED = "spikingjelly"  # requires torchvision, of which there is no build for the tests' torch
FILE = re.compile(r"# (\w+\.py)\n")  # the first line of a block that is to be saved
TIME = re.compile(r"\b\d[\d.]* (ms|s|min)\b")
STEPS = 4  # of training in a test, whatever the page's task says


class Block(NamedTuple):
    """A block of code, its language, and the block of text right below it: what it prints."""

    language: str
    text: str
    shown: str


def blocks(page: Path) -> list[Block]:
    """All of a page, in order."""
    pattern = r"^```(\w*)\n(.*?)^```$(?:\n\n```text\n(.*?)^```$)?"
    found = re.findall(pattern, page.read_text(), re.DOTALL | re.MULTILINE)
    return [Block(*block) for block in found]


def is_alike(printed: str, shown: str) -> bool:
    """Whether the words are the same, and the numbers up to a tenth: machines round differently.

    Times are not compared, nor the width of columns, which follows from them.
    """
    texts = [
        re.split(r"(\d[\d,]*\.?\d*)", " ".join(TIME.sub("a time", text).split()))
        for text in (printed, shown)
    ]
    numbers = [[float(number.replace(",", "")) for number in text[1::2]] for text in texts]
    same = texts[0][::2] == texts[1][::2]
    return same and all(isclose(*pair, rel_tol=0.1) for pair in zip(*numbers, strict=True))


def commands(block: Block) -> list[list[str]]:
    """The arguments of every `hardstep` in a block of shell."""
    lines = [shlex.split(line, comments=True) for line in block.text.splitlines()]
    return [words[1:] for words in lines if words[:1] == ["hardstep"]]


def run_page(page: Path, monkeypatch) -> dict:
    """Run a page's Python, shell and suites in the current folder; returns its variables.

    Commands about a file in the folder train a few steps; of all others the arguments are read. A
    block that needs `UNTESTED` is run where that is installed.
    """
    monkeypatch.setattr(command, "import_module", _Commands)
    names = {"__name__": "page"}
    for block in blocks(page):
        if block.language == "python":
            code = compile(block.text, str(page), "exec")
            if f"\nfrom {UNTESTED}" in block.text and find_spec(UNTESTED) is None:
                continue
            if title := FILE.match(block.text):
                Path(title[1]).write_text(block.text)
            with redirect_stdout(StringIO()) as printed:
                exec(code, names)
            assert not block.shown or is_alike(printed.getvalue(), block.shown), printed.getvalue()
        elif block.language == "toml":
            Path("suite.toml").write_text(block.text)
            assert suite.read("suite.toml")
        elif block.language == "sh":
            for arguments in commands(block):
                code = command.app(arguments, standalone_mode=False)
                assert not code, f"hardstep {' '.join(arguments)}"
    return names


class _Commands(SimpleNamespace):
    """In the place of a command's module: what is asked for runs if it is short."""

    def __init__(self, name):
        self.module = name

    def __getattr__(self, function):
        def run(options):
            about = getattr(options, "checkpoint", None) or getattr(options, "task", "")
            where = str(about).split(":")[0]
            if not where or not Path(where).exists() or "diagnose" in function:
                return 0
            if "compare" in function or "tune" in function:
                return 0
            if "train" in function and not options.resume:
                options = replace(options, steps=STEPS)
            return getattr(import_module(self.module), function)(options)

        return run
