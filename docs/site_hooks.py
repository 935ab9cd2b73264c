"""What mkdocs does to a page before it renders it.

Links that leave docs/ name the file instead, the comments around generated tables go, numbers in
tables stay on one line, and `<!-- commands -->` becomes the reference of the command line, made
from its own help.
"""

import posixpath
import re
from collections.abc import Iterator
from dataclasses import MISSING, Field, fields
from typing import Any, get_args

from typer.models import ArgumentInfo

from hardstep.cli.commands import COMMANDS

LINK = re.compile(r"(?<!!)\[([^\]]*)\]\(((?:\.\./)+[^)\s]*)\)")
PLACE = "<!-- commands -->"
WITHIN_NUMBER = re.compile(r"(?<=[=<>±\d]) (?=[\d±(]|m?s\b)")  # as in "= 94.6" and "148 ms"


def on_page_markdown(markdown: str, page: Any, **kwargs: Any) -> str:
    """Called by mkdocs with the text of every page."""
    folder = posixpath.dirname(f"docs/{page.file.src_uri}")
    if PLACE in markdown:
        markdown = markdown.replace(PLACE, "\n".join(_commands()))
    markdown = re.sub(r"^<!--.*?-->$", "", markdown, flags=re.MULTILINE)
    markdown = re.sub(r"<!--.*?-->", "", markdown)
    markdown = LINK.sub(lambda link: _link(link, folder), markdown)
    return re.sub(r"^\|.*$", _keep_numbers_whole, markdown, flags=re.MULTILINE)


def _keep_numbers_whole(row: re.Match[str]) -> str:
    """A row of a table whose numbers are not broken over lines."""
    return WITHIN_NUMBER.sub("\u00a0", row[0])


def _link(link: re.Match[str], folder: str) -> str:
    text, target = link.groups()
    path = posixpath.normpath(posixpath.join(folder, target))
    if path.startswith("docs/"):
        return link[0]
    named = posixpath.basename(path) in text
    return f"`{path}`" if named else f"{text} (`{path}`)"


def _commands() -> Iterator[str]:
    """A section per command: its help, how it is typed, and a table of its options."""
    for name, (options, _) in COMMANDS.items():
        rows = [_Row(field) for field in fields(options)]
        typed = " ".join(["hardstep", name, *(row.argument for row in rows if row.argument)])
        yield f"## hardstep {name}\n\n{options.__doc__}\n\n```text\n{typed} [OPTIONS]\n```\n"
        yield "| argument or option | what it does |\n|---|---|"
        yield from map(str, rows)
        yield ""


class _Row:
    """One field of a command's options, as the command shows it."""

    def __init__(self, field: Field[Any]) -> None:
        kind, self.info = get_args(field.type)
        name = field.name.replace("_", "-")
        given = field.default is not MISSING or field.default_factory is not MISSING
        silent = field.default in ((), MISSING, None) or field.default is False
        self.default = None if silent else field.default
        self.argument = ""
        if isinstance(self.info, ArgumentInfo):
            self.argument = f"[{name.upper()}]" if given else name.upper()
        metavar = self.info.metavar or name.upper()
        value = "" if kind is bool else f" {metavar}"
        typed = ", ".join(self.info.param_decls or (f"--{name}",))
        self.typed = self.argument or f"{typed}{value}"

    def __str__(self) -> str:
        text = (self.info.help or "").replace("|", "\\|")
        default = f" Default: `{self.default}`." if self.default is not None else ""
        return f"| `{self.typed}` | {text}{default} |"
