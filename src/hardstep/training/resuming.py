"""Whether a saved run is the one that is to go on."""

from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn

from hardstep.errors import CheckpointError


def check_weights(model: nn.Module, saved: Mapping[str, Tensor]) -> None:
    """Refuse the weights of another model, before anything is changed."""
    shapes = {name: tuple(tensor.shape) for name, tensor in saved.items()}
    own = {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}
    odd = [name for name in own | shapes if own.get(name) != shapes.get(name)]
    if odd:
        now, before = (part.get(odd[0], "absent") for part in (own, shapes))
        raise CheckpointError(
            f"fit: the checkpoint is of another model: {odd[0]} was {before} and is {now}; build "
            "the model it was saved with"
        )


def check_stream(now: Mapping[str, Any], saved: Mapping[str, Any]) -> None:
    """Refuse other batches, as far as they can be told apart."""
    for name, value in now.items():
        if saved.get(name, value) != value:
            raise CheckpointError(
                f"fit: train has {name} {value}, that of the saved run had {saved[name]}; resume "
                "with the same batches, or start a new run with another checkpoint"
            )


def with_way_out(error: CheckpointError, now: int, saved: int) -> CheckpointError:
    """The optimizer's refusal; schedules made for another number of steps are a common reason."""
    if now == saved or not saved:
        return error
    return CheckpointError(
        f"{error}; the saved run was to take {saved} steps and this one {now}, so schedules made "
        f"for the whole run differ: resume with its limits, or train on from its weights, "
        f"checkpoints.load(path)['model'], as a new run with another checkpoint"
    )
