"""The base of what watches torch operation by operation."""

from torch.utils._python_dispatch import TorchDispatchMode


class DispatchMode(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """A dispatch mode that does not load torch's compiler, which takes most of a second."""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()  # type: ignore[no-untyped-call]

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Torch asks; saying yes wraps every operation in a guard that imports the compiler."""
        return False
