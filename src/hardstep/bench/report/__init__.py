"""A summary as text for the terminal, as Markdown, and as one HTML page."""

from hardstep.bench.report.markdown import render_markdown
from hardstep.bench.report.page import render
from hardstep.bench.report.text import write_comparison, write_score, write_table

__all__ = ["render", "render_markdown", "write_comparison", "write_score", "write_table"]
