"""Times and counts as one would say them."""

_UNITS = (("h", 3600.0), ("min", 60.0), ("s", 1.0), ("ms", 1e-3))


def format_duration(seconds: float) -> str:
    """Two digits of hours, minutes, seconds or milliseconds, whichever one would say."""
    for unit, size in _UNITS:
        if seconds >= (1.5 if size > 1 else 0.995) * size or unit == "ms":
            break
    number = seconds / size
    return f"{number:.0f} {unit}" if number >= 10 or number == 0 else f"{number:.2g} {unit}"


def format_count(number: float) -> str:
    """Three digits and a unit: 512, 7.35 k, 1.2 M, 3 G."""
    for unit, size in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if number >= size:
            return f"{number / size:.3g} {unit}"
    return f"{number:.3g}"
