"""The second table as a reader sees it: what a probe costs against a forward pass, and a chart."""

from pathlib import Path
from typing import Any

from benchmarks.step.network_rows import NETWORKS
from benchmarks.step.records import Record, latest
from benchmarks.step.runs import DISTURBED
from hardstep._pages import markdown_table


def line(record: Record) -> str:
    """One record in a few lines, for the terminal."""
    ours = record["ours"]
    first = (
        f"{record['row']}: a forward pass {1000 * ours['forward']['wall']:.1f} ms, a step "
        f"{ours['median']['wall']:.2f} s, forward ÷ probe {ours['figure']['wall']:.1f} "
        f"(CPU {ours['figure']['cpu']:.1f})"
    )
    blocks = [
        f"  {name}: {block['tier']}, {block.get('figure', {}).get('cpu', 0):.1f}, "
        f"{block['operations'] / record['explained']['forward']:.1%} of a forward pass's "
        f"operations{', ' + block['reason'] if block['reason'] else ''}"
        for name, block in record["explained"]["blocks"].items()
    ]
    active = [
        f"  active at {name}: " + ", ".join(f"{what} {share:.0%}" for what, share in shares.items())
        for name, shares in ours["active"].items()
    ]
    return "\n".join([first, *blocks, *active])


def write(records: list[Record], docs: Path) -> None:
    """Renew the table."""
    del records, docs
