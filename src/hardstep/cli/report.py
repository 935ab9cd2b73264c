"""`hardstep report`: one page from the records of runs, HTML or Markdown by its name."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from hardstep._files import check_writable, replacing
from hardstep.bench.report import render, render_markdown
from hardstep.bench.summary import summarize
from hardstep.cli.bench import tell_skipped
from hardstep.cli.outputs import recorded
from hardstep.errors import DataError

WRITERS = {".html": render, ".htm": render, ".md": render_markdown}


@dataclass(frozen=True)
class ReportOptions:
    """The arguments of the command."""

    records: Sequence[Path]
    out: Path = Path("report.html")
    reference: str = "polystep"


def run_report(options: ReportOptions) -> int:
    """Read, compute, write; the page is either the old one or the new one."""
    check_writable(options.out, "--out")
    if options.out.suffix not in WRITERS:
        raise DataError(
            f"{options.out} ends neither as a page nor as Markdown does; name another with --out, "
            f"ending in {', '.join(WRITERS)}"
        )
    records, skipped = [], []
    for path in options.records:
        loaded = recorded(path)
        records += loaded.records
        skipped += loaded.skipped
    summary = summarize(records, options.reference, skipped)
    tell_skipped(list(summary.skipped))
    page = WRITERS[options.out.suffix](summary).encode()
    with replacing(options.out) as temporary:
        temporary.write_bytes(page)
    print(f"{options.out}: {len(summary.runs):,} runs, {len(page) / 1e3:,.0f} kB")
    return 0
