"""Rotations of steps, of which the next may be drawn while the losses of this one are awaited."""

from torch import Tensor

from hardstep import seeds
from hardstep.geometry import Rotation


class Draws:
    """The rotations of a run: those of a step are the same whenever they are drawn."""

    def __init__(self, rotation: Rotation, seed: int) -> None:
        self._rotation, self._seed = rotation, seed
        self._ahead: tuple[int, Tensor] | None = None  # of the step, if drawn before it began

    @property
    def may_be_early(self) -> bool:
        """Whether they are known before the move of the step before them is."""
        return not getattr(self._rotation, "looks_back", True)

    def draw(self, step: int, previous_move: Tensor) -> Tensor:
        """Those of a step (P, d_p, d_p), for particles that last moved by so much (P, d_p)."""
        if self._ahead is not None and self._ahead[0] == step:
            return self._ahead[1]
        return self._rotation.draw(previous_move, seeds.generator(self._seed, "rotation", step))

    def draw_ahead(self, step: int, like: Tensor) -> None:
        """Draw those of a step that is still to come, for particles (P, d_p)."""
        self._ahead = step, self.draw(step, like)
