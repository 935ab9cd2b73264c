"""Parts of a page that are made from records: each stands between two comments.

The first names it: `<!-- table: digits -->` and `<!-- end of table -->` on lines of their own, or,
for a few words of a sentence, `<!-- figure: cost -->3 to 8 s<!-- end of figure -->`.
"""

import re
from collections.abc import Mapping

PLACE = re.compile(r"<!-- (table|figure): ([^>]*?) -->.*?<!-- end of \1 -->", flags=re.DOTALL)
LINES = {"table": "\n", "figure": ""}  # around what is written


def renew(text: str, found: Mapping[str, str]) -> str:
    """The text with every such part renewed.

    Raises:
        KeyError: It asks for something there is none of.
    """

    def part(place: re.Match[str]) -> str:
        kind, name = place.groups()
        line = LINES[kind]
        return f"<!-- {kind}: {name} -->{line}{found[name]}{line}<!-- end of {kind} -->"

    return PLACE.sub(part, text)
