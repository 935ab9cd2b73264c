"""What the pages of both tables have in common: a part between markers, and numbers in words."""

from pathlib import Path

from benchmarks.step.records import Record

PAGE = "performance.md"


def renew(page: Path, markers: tuple[str, str], content: str) -> None:
    """Replace what stands between two markers of a page."""
    begin, end = markers
    before, rest = page.read_text().split(begin)
    after = rest.split(end)[1]
    page.write_text(f"{before}{begin}\n{content}\n{end}{after}")
    print(f"wrote {page}")


def describe_pictures(found: list[Record]) -> str:
    """Which rows were measured on pictures of MNIST."""
    real = [r["title"] for r in found if r["ours"].get("pictures", "drawn") == "MNIST"]
    if len(real) in (0, len(found)):
        return "pictures of MNIST" if real else "drawn pictures"
    return f"pictures of MNIST for {', '.join(real)}, drawn ones for the others"


def describe_range(measured: list[Record], name: str = "peak_operations") -> str:
    """From the least to the most that was measured, in 10⁹."""
    values = sorted({round(one[name] / 1e9) for one in measured})
    return f"{values[0]} to {values[-1]}" if len(values) > 1 else str(values[0])


def times(ratio: float) -> str:
    """A ratio with two digits that mean something."""
    return f"{ratio:,.0f}×" if ratio >= 10 else f"{ratio:.1f}×"


def seconds(value: float) -> str:
    """A time with about three digits."""
    if value < 1:
        return f"{1000 * value:.0f} ms"
    return f"{value:.1f} s" if value < 100 else f"{value:,.0f} s"


def show_figure(value: float) -> str:
    """A figure, which is a ratio, without a sign."""
    return f"{value:,.0f}" if value >= 10 else f"{value:.1f}"
