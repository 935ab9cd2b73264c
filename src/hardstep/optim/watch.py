"""Says, once per cause, why the steps of an optimizer get nowhere, or why they are slow.

    dead rows   most particles saw the same loss in all of their directions, for several steps
    still loss  the loss has not fallen in the first hundred steps
    slow loss   values of tensors are read into Python, so candidates are evaluated one by one

The built-in tasks have at most 44 % dead rows in any step on the bundled digits, and silent
spiking networks 86 to 99 %.
"""

import math
from statistics import fmean

from hardstep.errors import DeadRowsWarning, SlowLossWarning, StillLossWarning, warn
from hardstep.evaluation import (
    ClosureObjective,
    FunctionObjective,
    ModelObjective,
    Objective,
)
from hardstep.optim.report import StepReport

DEAD = 0.8  # share of dead rows that is too much
DEAD_STEPS = 5  # in a row
ALL_DEAD_STEPS = 3  # in a row, if every row is dead
STILL_STEPS = 100  # from the first on; the built-in tasks have lost half of their loss by then
STILL_MEAN = 20  # steps at either end: the loss of one depends on its batch and its probes
STILL = 0.01  # of the first loss: what does not count as a fall
LEARNED = 0.1  # of the first loss: a run that is so much better may be at its end
READS = ("_local_scalar_dense", ".item()", "control flow")  # what evaluators say of it


class Watch:
    """Of one optimizer; takes no part in its steps.

    Args:
        patience: Dead steps that the optimizer's rules may need to end them by themselves.
    """

    def __init__(self, patience: int = 0) -> None:
        self._most_dead = ALL_DEAD_STEPS + patience
        self._losses: list[float] = []  # of the first steps
        self._best = math.inf
        self._dead: list[float] = []  # shares of the latest steps in a row that had too much
        self._said: set[type[Warning]] = set()

    def note(self, report: StepReport, objective: Objective) -> None:
        """Take in a step; warn if it is the one that shows a cause.

        An objective of the user's own may have variables that nothing depends on, so that dead rows
        say little.
        """
        if isinstance(objective, ModelObjective):
            self._note_reads(objective.evaluator)
        elif not isinstance(objective, ClosureObjective | FunctionObjective):
            return
        if not report.solved or not math.isfinite(report.loss):
            return
        if len(self._losses) < STILL_STEPS:
            self._losses.append(report.loss)
        self._best = min(self._best, report.loss)
        self._note_dead(report, _find_dead(report, objective))
        self._note_still(report)

    def _note_dead(self, report: StepReport, share: float) -> None:
        self._dead = [*self._dead, share] if share >= DEAD else []
        way_out = (
            "if units of the network never fire, hardstep.nn.wake(model, inputs) scales its layers "
            f"until they do; else enlarge probe_radius, {report.probe_radius:g} here; "
            "hardstep.optim.diagnose and `hardstep diagnose` try radii"
        )
        if self._has_learned(report.loss):
            return
        if self._dead[-self._most_dead :] == [1.0] * self._most_dead:
            self._warn(
                DeadRowsWarning,
                f"dead: in {self._most_dead} steps in a row, all probes of a step returned the "
                f"same loss ({report.loss:.4g} in the last one), so nothing can move; {way_out}",
            )
        elif len(self._dead) >= max(DEAD_STEPS, self._most_dead):
            self._warn(
                DeadRowsWarning,
                f"nearly dead: in {len(self._dead)} steps in a row, all probes of a particle "
                f"returned the same loss for at least {math.floor(100 * min(self._dead))} % of the "
                f"particles, so these do not move; {way_out}",
            )

    def _note_still(self, report: StepReport) -> None:
        # A loss that stands still because rows are dead is one cause, not two.
        if len(self._losses) < STILL_STEPS or DeadRowsWarning in self._said:
            return
        first, last = fmean(self._losses[:STILL_MEAN]), fmean(self._losses[-STILL_MEAN:])
        if first != 0 and first - last <= STILL * abs(first):
            self._warn(
                StillLossWarning,
                f"the loss has not fallen in the first {STILL_STEPS} steps, from {first:.4g} to "
                f"{last:.4g}; hardstep.optim.diagnose and `hardstep diagnose` try other values of "
                f"probe_radius ({report.probe_radius:.3g}), step_radius ({report.step_radius:.3g}) "
                f"and temperature ({report.temperature:.3g})",
            )

    def _has_learned(self, loss: float) -> bool:
        """Whether the loss is near its best, and that well below the first."""
        margin = LEARNED * abs(self._losses[0])
        return self._losses[0] - self._best > margin and loss - self._best <= margin

    def _note_reads(self, evaluator: object) -> None:
        notes = getattr(evaluator, "notes", None) or {None: getattr(evaluator, "note", "")}
        if any(mark in note for note in notes.values() for mark in READS):
            self._warn(
                SlowLossWarning,
                "the loss or the model reads values of tensors into Python (.item(), float(), or a "
                "branch such as `if x.sum() > 0:`), so candidates are evaluated one by one, which "
                "is slow; return the loss as a tensor, and write torch.where(condition, a, b) for "
                "a branch",
            )

    def _warn(self, category: type[Warning], text: str) -> None:
        if category not in self._said:
            self._said.add(category)
            warn(category, text)


def _find_dead(report: StepReport, objective: Objective) -> float:
    """The share of dead rows among the particles that the batch could tell something about.

    Words that do not occur in the batch are dead, and nothing is wrong with them.
    """
    evaluator = objective.evaluator if isinstance(objective, ModelObjective) else None
    idle = getattr(evaluator, "idle", 0) / max(1, report.evaluations)
    return (report.dead_share - idle) / (1 - idle) if idle < 1 else 0.0
