"""Pages: HTML that is safe by construction, its shell, and tables in Markdown.

element("td", name, class_="number")    text is escaped, markup is taken as it is
"""

import html
import json
from collections.abc import Sequence
from typing import Any

from hardstep._text import to_line


class Markup(str):
    """A string that needs no escaping."""

    __slots__ = ()


def element(name: str, *children: str | None, **attributes: str | float | bool | None) -> Markup:
    """An element; children that are none are left out, and so are attributes none or false.

    Attributes are named as in HTML, with `_` for `-` and one at the end where Python needs it.
    """
    written = "".join(
        _attribute(key, value)
        for key, value in attributes.items()
        if value is not None and value is not False
    )
    inner = join(*(child for child in children if child is not None))
    return Markup(f"<{name}{written}>{inner}</{name}>")


def join(*children: str) -> Markup:
    """Children one after another, escaped unless they are markup."""
    return Markup(
        "".join(child if isinstance(child, Markup) else html.escape(child) for child in children)
    )


def _attribute(key: str, value: str | float | bool) -> str:
    name = key.rstrip("_").replace("_", "-")
    return f" {name}" if value is True else f' {name}="{html.escape(str(value))}"'


def embed_json(content: Any) -> Markup:
    """JSON that may stand inside a script element, whatever its strings contain."""
    text = json.dumps(content, separators=(",", ":"), allow_nan=False)
    return Markup(text.replace("<", r"\u003c").replace(">", r"\u003e").replace("&", r"\u0026"))


def html_page(title: str, style: str, body: str, *, head: str = "") -> str:
    """One self-contained page that reads on a phone; `body` is markup, the title text."""
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"{head}"
        '<meta name="color-scheme" content="light dark">\n<link rel="icon" href="data:,">\n'
        f"{element('title', title)}\n<style>{style}</style>\n</head>\n"
        f"<body>\n{body}\n</body>\n</html>\n"
    )


def markdown_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table; cells may hold any character, and tags only where they are markup."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(map(_markdown_cell, line))} |" for line in lines)


def _markdown_cell(text: str) -> str:
    safe = text if isinstance(text, Markup) else safe_in_markdown(text)
    return safe.replace(r"\|", r"\&#124;").replace("|", r"\|")  # not all take \\| for a pipe


def safe_in_markdown(text: str) -> str:
    """Text on one line in which nothing opens a tag or a link."""
    return to_line(text).replace("<", "&lt;").replace("](", r"]\(").replace("][", r"]\[")
