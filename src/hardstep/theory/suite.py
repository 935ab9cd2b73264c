"""The contract of a theory check, and the runner that judges it.

A check computes numbers and says what they should be; the runner decides. The same predicate
judges the measured values and the controls: finite, nearby, wrong objects, each of which must
fail. A check whose control passes could not have failed, and is reported as broken.
"""

import math
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

import numpy as np

from hardstep.errors import ConfigError

Kind = Literal["X", "Q", "M", "P"]  # exact, quadrature, Monte Carlo, protocol on a network
Values = Mapping[str, float]


@dataclass(frozen=True)
class Setup:
    """What a check may depend on."""

    seed: int = 0
    quick: bool = True

    def rng(self, *purpose: int) -> np.random.Generator:
        """A generator of this check alone; different purposes are independent."""
        return np.random.default_rng([self.seed, *purpose])


@dataclass(frozen=True)
class Evidence:
    """What a check found.

    Args:
        measured: Named numbers.
        expected: What they should be, where a closed form or a precise value exists.
        tol: How far from an expected value still passes.
        controls: Wrong objects by name, measured in the same way under the same names.
        tols: By name, where they differ from `tol`; infinite for a value that is only shown.
        also: What is asked besides: bounds, and values that nothing else is expected of.
        paper: Printed values, by the names of `measured`.
        paper_tol: How far from a printed value still counts as agreement, by name or for all.
        note: What a reader should know, such as where the paper's figure is noise.
    """

    measured: Values
    expected: Values
    tol: float
    controls: Mapping[str, Values]
    tols: Values = field(default_factory=dict)
    also: Callable[[Values], bool] = lambda values: True
    paper: Values = field(default_factory=dict)
    paper_tol: float | Values = 0.0
    note: str = ""

    def ok(self, values: Values) -> bool:
        """The predicate; it judges `measured` and every control."""
        near = (
            abs(values[name] - value) <= self.tols.get(name, self.tol)
            for name, value in self.expected.items()
        )
        return all(near) and bool(self.also(values))


Function = Callable[[Setup], Evidence]


class Check(NamedTuple):
    """A registered check."""

    id: str
    theorem: str
    kind: Kind
    function: Function

    @property
    def group(self) -> str:
        """The letter its identifier begins with."""
        return self.id[0]

    @property
    def title(self) -> str:
        """The first line of its docstring."""
        return (self.function.__doc__ or self.id).strip().splitlines()[0].rstrip(".")


@dataclass(frozen=True)
class Outcome:
    """A check and its verdicts; `as_dict` has the keys of the specification."""

    check: Check
    evidence: Evidence
    passed: bool
    controls_failed: Mapping[str, bool]  # each must
    seconds: float  # of CPU time

    @property
    def sound(self) -> bool:
        """Whether the check passed and every control failed."""
        return self.passed and all(self.controls_failed.values())

    @property
    def paper_agrees(self) -> bool | None:
        """Whether measured values are those the paper prints; None where it prints none."""
        tol, evidence = self.evidence.paper_tol, self.evidence
        if not evidence.paper:
            return None
        allowed = {n: tol.get(n, 0.0) if isinstance(tol, Mapping) else tol for n in evidence.paper}
        return all(
            abs(evidence.measured[name] - printed) <= allowed[name]
            for name, printed in evidence.paper.items()
        )

    def as_dict(self) -> dict[str, object]:
        """For JSON."""
        evidence = self.evidence
        return {
            "id": self.check.id,
            "title": self.check.title,
            "theorem": self.check.theorem,
            "kind": self.check.kind,
            "measured": dict(evidence.measured),
            "expected": dict(evidence.expected),
            "tol": evidence.tol,
            "verdict": "pass" if self.passed else "fail",
            "control": {name: dict(values) for name, values in evidence.controls.items()},
            "control_verdict": {
                name: "fail" if failed else "pass" for name, failed in self.controls_failed.items()
            },
            "paper_value": dict(evidence.paper),
            "paper_agrees": self.paper_agrees,
            "seconds": self.seconds,
            "note": evidence.note,
        }


_CHECKS: dict[str, Check] = {}


def check(identifier: str, theorem: str, kind: Kind) -> Callable[[Function], Function]:
    """Register a check under its identifier in the specification, such as "A1" or "A1-MC"."""

    def register(function: Function) -> Function:
        if identifier in _CHECKS:
            raise ConfigError(f"two checks are called {identifier}")
        _CHECKS[identifier] = Check(identifier, theorem, kind, function)
        return function

    return register


def list_checks() -> list[Check]:
    """The checks of all modules imported so far, by group and number."""
    return sorted(_CHECKS.values(), key=lambda c: _order(c.id))


def _order(identifier: str) -> tuple[str, int, str]:
    digits = "".join(c for c in identifier[1:].split("-")[0] if c.isdigit())
    return identifier[0], int(digits or 0), identifier


def merge(parts: Iterable[Values]) -> dict[str, float]:
    """Named numbers of several tables in one."""
    return {name: value for part in parts for name, value in part.items()}


def judge(check: Check, setup: Setup) -> Outcome:
    """Run one check and decide."""
    began = time.process_time()
    evidence = check.function(setup)
    seconds = time.process_time() - began
    for name, values in evidence.controls.items():
        if not all(math.isfinite(value) for value in values.values()):
            raise ConfigError(f"{check.id}: control {name!r} must be finite, got {values}")
    if not evidence.controls:
        raise ConfigError(f"{check.id} has no control, so nothing shows that it could fail")
    failed = {name: not evidence.ok(values) for name, values in evidence.controls.items()}
    return Outcome(check, evidence, evidence.ok(evidence.measured), failed, seconds)
