"""HTML that is safe by construction, and how numbers are written in it.

element("td", name, class_="number")    text is escaped, markup is taken as it is
"""

import html
import json
import math
from typing import Any

NONE = "–"


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


def embedded(content: Any) -> Markup:
    """JSON that may stand inside a script element, whatever its strings contain."""
    text = json.dumps(content, separators=(",", ":"), allow_nan=False)
    return Markup(text.replace("<", r"\u003c").replace(">", r"\u003e").replace("&", r"\u0026"))


def score(value: tuple[float, float] | None, num: int, digits: int) -> str:
    """Mean and spread; a single run has no spread."""
    if value is None:
        return NONE
    mean, spread = value
    return f"{mean:.{digits}f}" + (f" ± {spread:.{digits}f}" if num > 1 else "")


def signed(value: float, digits: int) -> str:
    """With its sign, a true minus."""
    return f"{value:+.{digits}f}".replace("-", "−")


def count(value: float | None) -> str:
    """A whole number with thousands separated."""
    return NONE if value is None else f"{value:,.0f}"


def seconds(value: float | None) -> str:
    """Three significant digits or so."""
    if value is None:
        return NONE
    return f"{value:,.2f}" if value < 10 else f"{value:,.1f}" if value < 100 else f"{value:,.0f}"


def megabytes(value: float | None) -> str:
    """Of bytes."""
    return NONE if value is None else f"{value / 1e6:,.0f}"


def p_value(value: float) -> str:
    """Or why there is none."""
    return "not computed" if math.isnan(value) else f"{value:.3g}"
