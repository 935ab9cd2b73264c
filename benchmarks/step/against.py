"""The rows of the first table, beside an older commit of hardstep: has one become slower?

The commit is checked out into a folder of its own. Two workers run the same benchmark, one with the
package of this tree and one with the package of that folder, and take turns on the same batches.
"""

import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from benchmarks.step.records import Record
from benchmarks.step.rows import Row
from benchmarks.step.runs import Plan, foreign_cores, medians
from benchmarks.step.wire import ROOT, Worker

CLOCKS = ("wall", "cpu")


class Tree(NamedTuple):
    """A commit, checked out."""

    revision: str
    folder: Path


def resolve(revision: str) -> str:
    """The full name of a commit.

    Raises:
        RuntimeError: There is none.
    """
    return _git("rev-parse", "--verify", f"{revision}^{{commit}}")


@contextmanager
def checkout(revision: str) -> Iterator[Tree]:
    """A commit in a temporary folder, which is removed afterwards."""
    name = resolve(revision)
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder) / "tree"
        _git("worktree", "add", "--detach", str(tree), name)
        try:
            yield Tree(name, tree)
        finally:
            _git("worktree", "remove", "--force", str(tree))


def _git(*arguments: str) -> str:
    done = subprocess.run(
        ["git", "-C", str(ROOT), *arguments], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise RuntimeError(f"git {' '.join(arguments)}: {done.stderr.strip()}")
    return done.stdout.strip()


def measure(row: Row, plan: Plan, tree: Tree) -> Iterator[Record]:
    """One record: medians of both, and how fast the newer one is of the older."""
    with tempfile.TemporaryDirectory() as caches:
        newer, older = (
            plan.ours(str(Path(caches) / name), source=folder / "src")
            for name, folder in (("newer", ROOT), ("older", tree.folder))
        )
        with newer, older:
            abouts = [worker.ask("setup", **plan.arguments(row)) for worker in (newer, older)]
            steps = take_turns(plan, newer, older)
    sides = {
        name: {
            "versions": about["versions"],
            "median": {clock: medians(found, clock) for clock in CLOCKS},
            "steps": found,
        }
        for name, about, found in zip(("ours", "older"), abouts, steps, strict=True)
    }
    times = {name: side["median"] for name, side in sides.items()}
    yield {
        "row": row.name,
        "title": row.title,
        "revision": tree.revision,
        "pictures": abouts[0]["pictures"],
        **sides,
        "speed": {clock: times["older"][clock] / times["ours"][clock] for clock in CLOCKS},
        "foreign_cores": foreign_cores([step for found in steps for step in found]),
    }


def take_turns(plan: Plan, newer: Worker, older: Worker) -> tuple[list[Record], list[Record]]:
    """Steps in turn, each side first every other time; the first ones compile."""
    found: dict[Worker, list[Record]] = {newer: [], older: []}
    for seed in range(plan.repeats + 1):
        for worker in (newer, older) if seed % 2 else (older, newer):
            step = worker.ask("step", seed=seed)
            if seed:
                found[worker].append(step)
    return found[newer], found[older]


def line(record: Record) -> str:
    """One record in one line, for the terminal."""
    wall, cpu = (record["speed"][clock] for clock in CLOCKS)
    what = f"{wall:.2f} of the speed of {record['revision'][:10]} (CPU {cpu:.2f})"
    return f"{record['row']}: {what}"
