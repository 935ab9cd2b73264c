"""`hardstep report`: one page from the records of runs, HTML or Markdown by its name."""

from hardstep._files import check_writable, explain_failed_write, write_atomically
from hardstep.bench.report import render, render_markdown
from hardstep.bench.summary import summarize
from hardstep.cli.files import list_skipped, read_records
from hardstep.cli.options import ReportOptions
from hardstep.cli.output import print
from hardstep.errors import DataError

WRITERS = {".html": render, ".htm": render, ".md": render_markdown}


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
        loaded = read_records(path)
        records += loaded.records
        skipped += loaded.skipped
    summary = summarize(records, options.reference, skipped)
    list_skipped(summary.skipped)
    page = WRITERS[options.out.suffix](summary).encode("utf-8", "backslashreplace")
    with explain_failed_write(options.out), write_atomically(options.out) as temporary:
        temporary.write_bytes(page)
    print(f"{options.out}: {len(summary.runs):,} runs, {len(page) / 1e3:,.0f} kB")
    return 0
