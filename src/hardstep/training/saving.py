"""When a run is saved, and what happens when it cannot be."""

import time

from hardstep.errors import CheckpointError
from hardstep.training import checkpoints
from hardstep.training.checkpoints import Checkpoint
from hardstep.training.run import Run


class Saver:
    """Keeps one run in its checkpoint; does nothing without one.

    A save on the way that fails, for instance on a full disk, leaves the file from before and does
    not end the run: there may be room next time. The last save raises.
    """

    def __init__(self, run: Run, checkpoint: Checkpoint | None) -> None:
        self.run = run
        self.checkpoint = checkpoint
        self._saved_at = time.perf_counter()
        self._has_failed = False  # the last time

    def after_step(self) -> None:
        """Save if it is time."""
        passed = time.perf_counter() - self._saved_at
        if self.checkpoint and passed >= self.checkpoint.every_seconds:
            self._try_to_save()

    def after_validation(self) -> None:
        """Save if that is wanted."""
        if self.checkpoint and self.checkpoint.at_validations:
            self._try_to_save()

    def at_end(self) -> None:
        """Save.

        Raises:
            CheckpointError: It cannot be; the model has the best weights then, too.
        """
        try:
            self._save()
        except CheckpointError:
            self.run.select_best()
            raise

    def _try_to_save(self) -> None:
        try:
            self._save()
        except CheckpointError as error:
            if not self._has_failed:
                self.run.warn(f"The run continues and will try to save again: {error}")
            self._has_failed = True
        else:
            if self._has_failed:
                self.run.warn(f"Saved again, after step {self.run.step}")
            self._has_failed = False

    def _save(self) -> None:
        if self.checkpoint is None:
            return
        content = self.run.state_dict() | {"meta": dict(self.checkpoint.meta)}
        try:
            checkpoints.save(self.checkpoint.path, content)
        finally:
            self._saved_at = time.perf_counter()
