"""What was found: each fault once, with the smallest input that shows it."""

import hashlib
import json
from pathlib import Path
from typing import NamedTuple

from tests.fuzz.target import Case

INPUT, ABOUT = "input", "finding.json"


class Finding(NamedTuple):
    """An input that was neither read nor refused in a sentence."""

    target: str
    what: str  # the type of an error, or what is wrong with an answer
    where: str  # the innermost line of ours
    said: str  # a traceback, or what was printed
    case: Case

    @property
    def key(self) -> str:
        """Findings with one key are one fault."""
        parts = "\n".join((self.target, self.what, self.where))
        return f"{self.target}-{hashlib.sha256(parts.encode()).hexdigest()[:8]}"


class Findings:
    """All faults of a run, in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.by_key: dict[str, Finding] = {}

    def add(self, found: Finding) -> bool:
        """Keep a finding if it is new, or smaller than the one known; whether it is new."""
        known = self.by_key.get(found.key)
        if known is None or len(found.case.content) < len(known.case.content):
            self.by_key[found.key] = found
            self._write(found)
        return known is None

    def _write(self, found: Finding) -> None:
        place = self.folder / found.key
        place.mkdir(parents=True, exist_ok=True)
        (place / INPUT).write_bytes(found.case.content)
        about = found._asdict() | {
            "case": {"exact": found.case.exact, "bytes": len(found.case.content)},
            "replay": f'make fuzz ARGS="--replay {place}"',
        }
        (place / ABOUT).write_text(json.dumps(about, indent=1) + "\n")


def load(place: Path) -> tuple[str, Case]:
    """The target and the input of a finding that was kept."""
    about = json.loads((place / ABOUT).read_text())
    return about["target"], Case((place / INPUT).read_bytes(), about["case"]["exact"])
