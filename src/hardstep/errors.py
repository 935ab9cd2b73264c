"""Every error hardstep raises on purpose; all of them are `HardstepError`."""


class HardstepError(Exception):
    """Base of all errors raised by hardstep."""


class ConfigError(HardstepError, ValueError):
    """A setting is out of range, unknown, or contradicts another one."""


class ObjectiveError(HardstepError, ValueError):
    """A loss function, closure or batched function returned something unusable."""


class CapacityError(HardstepError, MemoryError):
    """A projection or table would not fit in memory; the message names an alternative."""


class CheckpointError(HardstepError, RuntimeError):
    """A checkpoint is missing, damaged, or belongs to a different configuration."""


class DataError(HardstepError, RuntimeError):
    """A data set is missing, damaged, or used against its protocol."""


class NonFiniteLossError(HardstepError, ArithmeticError):
    """Losses were NaN or infinite and the policy is `raise`."""

    def __init__(self, count: int, first: tuple[int, ...]) -> None:
        super().__init__(
            f"{count} losses were not finite, the first at (particle, vertex, probe) = {first}; "
            "use nonfinite='worst' to rank such probes last and continue"
        )
        self.count = count
        self.first = first

    def __reduce__(self) -> tuple[type["NonFiniteLossError"], tuple[int, tuple[int, ...]]]:
        return type(self), (self.count, self.first)  # so that a worker process can send it
