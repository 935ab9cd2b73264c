"""How numbers are written in a report."""

import math

NONE = "–"


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
