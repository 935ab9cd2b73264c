"""What `fit` is told beside batches and limits, checked before the first step."""

from collections.abc import Sequence

from torch import nn

from hardstep.errors import ConfigError
from hardstep.training.callbacks import Callback, EarlyStopping

HOOKS = [name for name in vars(Callback) if name.startswith("on_")]
NEEDED = ("model", "seed", "step", "steps", "evaluations", "report", "state_dict")


def check_optimizer(optimizer: object, model: nn.Module) -> None:
    """Refuse an optimizer that is none of ours, or one of another model."""
    if isinstance(optimizer, type) or not all(hasattr(optimizer, name) for name in NEEDED):
        kind = optimizer if isinstance(optimizer, type) else type(optimizer)
        seen = f"{'the class' if kind is optimizer else 'a'} {kind.__name__}"
        raise ConfigError(
            "fit: optimizer must be an object such as PolyStep(model) or one of "
            f"hardstep.baselines, got {seen}"
        )
    if optimizer.model is not model:  # type: ignore[attr-defined]
        raise ConfigError("fit: the optimizer was built for another model")


def check_callbacks(callbacks: object, validated: bool) -> list[Callback]:
    """The callbacks as a list.

    Raises:
        ConfigError: They are none, or one of them waits for validations that never come.
    """
    if not isinstance(callbacks, Sequence):
        raise ConfigError(
            f"fit: callbacks must be a list, got {callbacks!r}; write callbacks=[…] around it"
        )
    for callback in callbacks:
        known = all(callable(getattr(callback, name, None)) for name in HOOKS)
        if isinstance(callback, type) or not known:
            raise ConfigError(
                f"fit: callbacks must hold objects of classes derived from "
                f"hardstep.training.Callback, got {callback!r}"
            )
        if isinstance(callback, EarlyStopping) and not validated:
            raise ConfigError("fit: EarlyStopping counts validations; give valid, or leave it out")
    return list(callbacks)
