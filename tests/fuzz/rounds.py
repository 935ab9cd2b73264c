"""Rounds over the targets, batch by batch, until there were enough inputs or minutes."""

import re
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

from hardstep._files import provenance
from tests.fuzz import feeds, worker
from tests.fuzz.answers import ACCEPTED, REFUSED
from tests.fuzz.findings import Finding, Findings
from tests.fuzz.target import Case, Target

FOUND = "findings"
FIRST_ROUND, LARGEST_ROUND = 2_000, 16_000  # inputs of all targets together
_fork = get_context("fork")  # torch is loaded once, and a new process takes milliseconds
_LINE = re.compile(r'File "[^"]*/hardstep/([^"]+)", line (\d+) in (\S+)')


class Limits(NamedTuple):
    """When to stop: after so many inputs or minutes, whichever is first."""

    inputs: int | None
    minutes: float | None


class Rounds:
    """A run of the fuzzer.

    Args:
        targets: What is read.
        place: A new folder for samples and what is in progress.
        findings: Where faults are kept.
        seed: Every input follows from it.
        say: Called with a line for every new fault.
    """

    def __init__(
        self,
        targets: Sequence[Target],
        place: Path,
        findings: Findings,
        seed: int = 0,
        say: Callable[[str], None] = print,
    ) -> None:
        self.targets, self.place, self.findings = targets, place, findings
        self.seed, self.say = seed, say
        self.counts = {target.name: Counter[str]() for target in targets}
        self.seconds = Counter[str]()
        self._began = time.monotonic()
        self._batches = Counter[str]()
        feeds.warm_up()
        for target in targets:
            (place / target.name).mkdir(parents=True)
            for _ in _follow(worker.prepare, target, self._folder(target)):
                pass

    def run(self, limits: Limits) -> None:
        """Go over the targets again and again; a small round first, so that all have their turn."""
        size = FIRST_ROUND
        while (count := self._choose_size(size, limits)) > 0:
            total = sum(target.share for target in self.targets)
            for target in self.targets:
                if self._is_late(limits):
                    return
                self._run_target(target, max(2, round(count * target.share / total)))
            size = min(2 * size, LARGEST_ROUND)

    def _choose_size(self, size: int, limits: Limits) -> int:
        if self._is_late(limits):
            return 0
        return size if limits.inputs is None else min(size, limits.inputs - self.inputs)

    def _is_late(self, limits: Limits) -> bool:
        spent = time.monotonic() - self._began
        return limits.minutes is not None and spent >= 60 * limits.minutes

    @property
    def inputs(self) -> int:
        """How many there were."""
        return sum(counts.total() for counts in self.counts.values())

    def _run_target(self, target: Target, count: int) -> None:
        """Half of the inputs by changing samples, half from nothing where there is a strategy."""
        began = time.monotonic()
        sources = (feeds.change_samples, *((feeds.draw,) if target.strategy is not None else ()))
        for source in sources:
            number = self._batches[target.name]
            self._batches[target.name] += 1
            feed = source(f"{self.seed} {target.name} {number}", -(-count // len(sources)))
            self.read(target, feed)
        self.seconds[target.name] += time.monotonic() - began

    def read(self, target: Target, feed: worker.Feed) -> None:
        """Let a process of its own read these inputs."""
        self._count(target, _follow(worker.run_batch, target, self._folder(target), feed))

    def _count(self, target: Target, outcomes: Iterable[str | Finding | None]) -> None:
        for outcome in outcomes:
            if outcome is None:
                outcome = self._find_crash(target)
            if isinstance(outcome, Finding):
                if self.findings.add(outcome):
                    self.say(f"{outcome.key}: {outcome.what}, {outcome.where}")
                outcome = FOUND
            self.counts[target.name][outcome] += 1

    def _find_crash(self, target: Target) -> Finding:
        """The input that a process ended at: a signal, a hang or memory that LLVM did not get."""
        folder = self._folder(target).parent
        kept = (folder / worker.CURRENT).read_bytes()
        dump = (folder / worker.DUMP).read_text(errors="replace")
        line = _LINE.search(dump)
        where = f"{line[1]}:{line[2]} in {line[3]}" if line else ""
        first = dump.partition("\n")[0]
        what = "hang" if first.startswith("Timeout") else first or "the process ended"
        return Finding(target.name, what, where, dump[:4_000], Case(kept[1:], bool(kept[0])))

    def _folder(self, target: Target) -> Path:
        return self.place / target.name / "files"

    def record(self) -> dict[str, Any]:
        """What was counted, as JSON."""
        rows = {
            name: {
                "inputs": counts.total(),
                **{kind: counts[kind] for kind in (REFUSED, ACCEPTED)},
                FOUND: sum(key.startswith(f"{name}-") for key in self.findings.by_key),
                "seconds": round(self.seconds[name], 1),
            }
            for name, counts in self.counts.items()
        }
        keys = next(iter(rows.values()))
        total = {key: round(sum(row[key] for row in rows.values()), 1) for key in keys}
        return {"seed": self.seed, "targets": rows, "total": total, **provenance()}


def _follow(function: Callable[..., None], *args: Any) -> Iterator[str | Finding | None]:
    """What a process sends; None if it ends before it is done.

    Raises:
        RuntimeError: It failed in code of the fuzzer.
    """
    here, there = _fork.Pipe(duplex=False)
    process = _fork.Process(target=worker.guard, args=(there, function, *args), daemon=True)
    process.start()
    there.close()
    try:
        while True:
            message = here.recv()
            if message is None:
                return
            if isinstance(message, worker.Broken):
                raise RuntimeError(f"the fuzzer itself failed:\n{message.text}")
            yield message
    except EOFError:
        yield None
    finally:
        process.kill()
        process.join()
        here.close()
