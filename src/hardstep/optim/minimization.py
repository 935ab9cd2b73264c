"""`minimize`: a black-box function in, the best point found out."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from hardstep.errors import ObjectiveError
from hardstep.evaluation.blackbox import as_number
from hardstep.optim.ask_tell import AskTell
from hardstep.optim.settings import Settings
from hardstep.optim.variables import Bounds, Vector


@dataclass(frozen=True)
class MinimizeResult:
    """What `minimize` found; fields named as in scipy's `OptimizeResult`."""

    x: Vector
    fun: float
    nfev: int
    nit: int
    success: bool  # a finite value was found, and the target was met if there was one
    message: str


def minimize(
    f: Callable[[Vector], Any],
    x0: ArrayLike,
    *,
    bounds: Bounds | None = None,
    scale: ArrayLike = 1.0,
    maximize: bool = False,
    vectorized: bool = False,
    max_evals: int | None = None,
    target: float | None = None,
    settings: Settings | None = None,
    seed: int = 0,
) -> MinimizeResult:
    """Minimize a function that may jump, be flat in places, or fail in others.

    Args:
        f: Takes a vector and returns a number; NaN and infinities rank last. With
            `vectorized` it takes (N, dim) and returns (N,).
        x0: Where to start.
        bounds: A (low, high) pair per variable.
        scale: Starting radius of the search where there are no bounds.
        maximize: Look for the largest value instead; `fun` and `target` keep f's sign.
        vectorized: Whether f takes many points at once.
        max_evals: Budget; 1,000 evaluations per variable by default.
        target: Stop once f is at least this good.
        settings: Plain PolyStep steps with these, instead of a search whose radius follows
            success (see `AskTell`).
        seed: Fixes every random draw.
    """
    sign = -1.0 if maximize else 1.0
    search = AskTell(
        x0=x0,
        scale=scale,
        bounds=bounds,
        max_evals=max_evals,
        target=None if target is None else sign * target,
        settings=settings,
        seed=seed,
    )
    while not search.should_stop():
        points = search.ask()
        if vectorized:
            values = np.asarray(f(points), dtype=np.float64)
            if values.shape != (len(points),):
                raise ObjectiveError(
                    f"minimize: a vectorized f must return {(len(points),)} values for points "
                    f"{points.shape}, got {values.shape}"
                )
        else:
            values = np.array([as_number("f", f(point)) for point in points])
        search.tell(sign * values)
    return _result(search, sign)


def _result(search: AskTell, sign: float) -> MinimizeResult:
    found = bool(np.isfinite(search.best.loss))
    met = search.target is None or search.best.loss <= search.target
    if not found:
        message = "no finite value was found"
    elif search.target is not None and met:
        message = "target reached"
    else:
        message = f"budget of {search.max_evals} evaluations used"
    return MinimizeResult(
        x=search.best.x,
        fun=sign * search.best.loss if found else float("nan"),
        nfev=search.evaluations,
        nit=search.optimizer.steps,
        success=found and met,
        message=message,
    )
