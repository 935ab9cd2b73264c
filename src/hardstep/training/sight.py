"""Whether steps see anything: what is said when they do not, and when to give up."""

import math

from hardstep.errors import ObjectiveError
from hardstep.optim import StepReport
from hardstep.training.run import Run

BLIND_STEPS = 10  # from the first on; a batch or two may be bad, ten in a row are no accident


def look(run: Run, report: StepReport) -> None:
    """Take in a step's report; say it when the step saw no finite loss, or no difference.

    Raises:
        ObjectiveError: No step so far had a finite loss, and there have been enough.
    """
    if math.isfinite(report.loss):
        run.sighted = True
        if run.step == 1 and report.dead_share == 1.0:
            run.say(_dead_start(report))
        return
    run.blind_steps += 1
    if run.blind_steps == 1:
        run.say(
            f"Every loss of step {run.step} was NaN or infinite, so it had nothing to go by: check "
            "the inputs, and what the model puts out for them."
        )
    if not run.sighted and run.blind_steps >= BLIND_STEPS:
        check_sighted(run)


def check_sighted(run: Run) -> None:
    """Refuse to call a run finished that has never seen a finite loss.

    Raises:
        ObjectiveError: There has been none.
    """
    if run.blind_steps and not run.sighted:
        raise ObjectiveError(
            f"fit: every loss of the first {run.blind_steps} steps was NaN or infinite; check the "
            "inputs for NaN, and what the model puts out for them"
        )


def _dead_start(report: StepReport) -> str:
    return (
        f"Dead start: every probe of the first step returned the same loss "
        f"({report.loss:.4g}), so nothing can move. The probes (radius "
        f"{report.probe_radius:g}) do not reach a change, or the network is silent "
        "(no unit fires): enlarge probe_radius, or scale up the initial weights."
    )
