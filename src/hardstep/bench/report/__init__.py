"""One page from records: tables, curves, ablations, and where every number came from."""

from hardstep.bench.report.contents import Contents, gather
from hardstep.bench.report.markdown import render_markdown
from hardstep.bench.report.page import render

__all__ = ["Contents", "gather", "render", "render_markdown"]
