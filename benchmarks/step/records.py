"""What is kept: one JSON line per measurement, with everything needed to take it again."""

import hashlib
import json
import os
import platform
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from hardstep.bench.records import read_lines

BENCHMARKS = Path(__file__).resolve().parent.parent
RECORDS = BENCHMARKS / "results" / "bench-step.jsonl"
NETWORK_RECORDS = BENCHMARKS / "results" / "bench-networks.jsonl"
Record = dict[str, Any]


def load(path: Path) -> list[Record]:
    """All records, oldest first."""
    return [json.loads(line) for _, line in read_lines(path)]


def append(path: Path, record: Record) -> None:
    """Add one record."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as stream:
        stream.write(json.dumps(record) + "\n")


def latest(records: list[Record], kind: str) -> dict[tuple[str, ...], Record]:
    """The newest record of each row (and axis) of a kind."""
    return {
        (record["row"], record.get("axis", "")): record
        for record in records
        if record["kind"] == kind
    }


def circumstances(command: str, threads: int) -> Record:
    """Where and when: beside every number."""
    return {
        "machine": {
            "processor": _processor(),
            "cores": os.cpu_count(),
            "threads": threads,
            "load_before": round(os.getloadavg()[0], 2),
        },
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": command,
    }


def versions() -> dict[str, str]:
    """Of what our side runs on."""
    found = {"python": platform.python_version(), "source": _source_digest()}
    for package in ("hardstep", "torch", "numpy", "llvmlite", "numba"):
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


def _source_digest() -> str:
    """A fingerprint of the installed hardstep: its version does not change with every edit."""
    found = find_spec("hardstep")
    assert found is not None
    assert found.origin is not None
    digest = hashlib.sha256()
    for file in sorted(Path(found.origin).parent.rglob("*.py")):
        digest.update(file.read_bytes())
    return digest.hexdigest()[:12]


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()
