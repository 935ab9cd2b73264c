"""`minimize`: a black-box function in, the best point found out."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import ArrayLike

from hardstep._checks import check_real
from hardstep.errors import ConfigError, ObjectiveError
from hardstep.evaluation.objectives import as_number
from hardstep.optim.ask_tell import AskTell, check_target
from hardstep.optim.settings import Settings
from hardstep.optim.variables import Bounds, Vector

OnError = Literal["raise", "worst"]


class Workers(Protocol):
    """What evaluates points elsewhere: an engine of `hardstep.distributed`."""

    def evaluate(
        self, function: Callable[[Vector], Any], points: Vector, *, name: str, forgiving: bool
    ) -> Vector:
        """Values at points (N, dim) and whether the function raised there, (N, 2)."""
        ...


@dataclass(frozen=True)
class MinimizeResult:
    """What `minimize` found; fields named as in scipy's `OptimizeResult`.

    `success` says that the search came to its end with something to show for it: a finite value
    was found, neither Ctrl-C nor a callback stopped it, and the target was met if there was one.
    Without a target the end is that of the budget, so using it up is no failure.
    """

    x: Vector
    fun: float
    nfev: int
    nit: int
    success: bool
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
    on_error: OnError = "raise",
    callback: Callable[[MinimizeResult], object] | None = None,
    settings: Settings | None = None,
    workers: Workers | None = None,
    seed: int = 0,
) -> MinimizeResult:
    """Minimize a function that may jump, be flat in places, or fail in others.

    Args:
        f: Takes a vector and returns a number; NaN and infinities rank last. With
            `vectorized` it takes (N, dim) and returns (N,).
        x0: Where to start.
        bounds: A (low, high) pair for all variables, or one pair per variable: with two variables
            `(0, 1)` is for both, and `((0, 1), (2, 3))` has one for each.
        scale: Starting radius of the search where there are no bounds.
        maximize: Look for the largest value instead; `fun` and `target` keep f's sign.
        vectorized: Whether f takes many points at once.
        max_evals: Budget; 1,000 evaluations per variable by default.
        target: Stop once f is at least this good.
        on_error: What to do when f raises an exception: `raise` lets it through, with the best
            point so far in a note; `worst` ranks the point last and counts it in the message.
        callback: Called after each step with the result so far. It stops the search by returning
            True or raising StopIteration.
        settings: Plain PolyStep steps with these, instead of a search whose radius follows
            success (see `AskTell`).
        workers: Where the points of a step are evaluated, such as
            `hardstep.distributed.Futures(pool)`; f travels there, and the result is the same.
        seed: Fixes every random draw.

    Returns:
        The best point found, also after Ctrl-C.
    """
    sign = -1.0 if maximize else 1.0
    caller = _Caller(f, sign, vectorized, on_error, workers)
    if callback is not None and not callable(callback):
        raise ConfigError(f"minimize: callback must be a function of a result, got {callback!r}")
    check_target("minimize", target)
    search = _Search(
        x0=x0,
        scale=scale,
        bounds=bounds,
        max_evals=max_evals,
        target=None if target is None else sign * target,
        settings=settings,
        seed=seed,
    )
    stopped = ""
    try:
        while not stopped and not search.should_stop:
            caller.evaluate(search)
            if callback is not None and not search.is_checking:
                stopped = _call(callback, _result(search, caller, "running"))
    except KeyboardInterrupt:
        stopped = "interrupted"
    except Exception as error:
        error.add_note(_note(search, sign))
        raise
    return _result(search, caller, stopped)


class _Search(AskTell):
    NAME = "minimize"


def _call(callback: Callable[[MinimizeResult], object], so_far: MinimizeResult) -> str:
    """Why the search stops; empty if it goes on."""
    try:
        answer = callback(so_far)
    except StopIteration:
        answer = True
    return "stopped by callback" if isinstance(answer, bool | np.bool_) and answer else ""


class _Caller:
    """Calls the user's function, and remembers how that went."""

    def __init__(
        self,
        f: Callable[[Vector], Any],
        sign: float,
        vectorized: bool,
        on_error: OnError,
        workers: Workers | None,
    ) -> None:
        if not callable(f):
            raise ConfigError(f"minimize: f must be a function of a vector, got {f!r}")
        if on_error not in ("raise", "worst"):
            raise ConfigError(f"minimize: on_error must be 'raise' or 'worst', got {on_error!r}")
        if vectorized and on_error == "worst":
            raise ConfigError(
                "minimize: on_error='worst' needs a function of one point, since an exception of a "
                "vectorized f does not say which point it is about; return NaN for it instead"
            )
        if vectorized and workers is not None:
            raise ConfigError(
                "minimize: workers evaluate points one by one; give f of one point, or leave "
                "workers out"
            )
        self.f, self.sign, self.vectorized, self.on_error = f, sign, vectorized, on_error
        self.workers = workers
        self.failures = 0
        self.failure = ""  # the last one

    def evaluate(self, search: AskTell) -> None:
        """One generation; values known before an exception are told, too."""
        points = search.ask()
        if self.vectorized:
            search.tell(self.sign * self._all(points))
            return
        if self.workers is not None:
            search.tell(self.sign * self._elsewhere(self.workers, points))
            return
        values: list[float] = []
        try:
            for point in points:
                values.append(self.sign * self._one(point))
        finally:
            search.tell(values, np.arange(len(values)))

    def _elsewhere(self, workers: Workers, points: Vector) -> Vector:
        forgiving = self.on_error == "worst"
        found = workers.evaluate(self.f, points, name="minimize: f", forgiving=forgiving)
        self.failures += int(found[:, 1].sum())
        self.failure = "on a worker"
        return found[:, 0]

    def _all(self, points: Vector) -> Vector:
        found = self.f(points)
        check_real("minimize: f must return", found)
        try:
            values = np.asarray(found, dtype=np.float64)
        except (TypeError, ValueError) as error:
            raise ObjectiveError(
                f"minimize: a vectorized f must return {(len(points),)} values, got "
                f"{repr(found)[:80]}"
            ) from error
        if values.shape != (len(points),):
            raise ObjectiveError(
                f"minimize: a vectorized f must return {(len(points),)} values for points "
                f"{points.shape}, got {values.shape}"
            )
        return values

    def _one(self, point: Vector) -> float:
        try:
            value = self.f(point)
        except Exception as error:
            if self.on_error == "raise":
                raise
            self.failures += 1
            self.failure = f"{type(error).__name__}: {error}"
            return np.nan
        if isinstance(value, str):
            raise ObjectiveError(f"minimize: f must return one number, got the text {value[:80]!r}")
        return as_number("minimize: f", value)


def _result(search: AskTell, caller: _Caller, stopped: str) -> MinimizeResult:
    """What there is now; `stopped` says why this is not the end of the search."""
    found = bool(np.isfinite(search.best.loss))
    met = search.target is None or search.best.loss <= search.target
    if stopped:
        message = stopped
    elif not found:
        message = "no finite value was found"
    elif search.target is not None and met:
        message = "target reached"
    else:
        message = f"budget of {search.max_evals} evaluations used"
    if caller.failures:
        message += f"; f raised {caller.failures} times, the last time {caller.failure}"
    return MinimizeResult(
        x=search.best.x.copy(),
        fun=caller.sign * search.best.loss if found else float("nan"),
        nfev=search.evaluations,
        nit=search.optimizer.steps,
        success=found and met and not stopped,
        message=message,
    )


def _note(search: AskTell, sign: float) -> str:
    """What an exception of f would otherwise take with it."""
    after = f"minimize: after {search.evaluations} evaluations"
    if not np.isfinite(search.best.loss):
        return f"{after} no finite value had been found"
    return f"{after} the best value was {sign * search.best.loss!r} at x = {search.best.x.tolist()}"
