"""What a run remembers between steps, and its form on disk.

The tensors being trained are not part of it: they are the model's, and saved with it.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeGuard

import torch
from torch import Tensor

from hardstep._checks import is_count, is_float, is_same, is_whole, show
from hardstep._text import to_sentence
from hardstep.errors import CheckpointError
from hardstep.optim.report import Statistics
from hardstep.optim.rules import Rule, RuleState
from hardstep.optim.settings import list_differences
from hardstep.solvers import Potentials
from hardstep.subspaces.base import BoundSubspace

FORMAT = 3


class State(NamedTuple):
    """Immutable; a step returns a new one."""

    step: int
    evaluations: int
    coordinates: Tensor  # z since the last absorb, as particles (P, d_p)
    previous_move: Tensor  # (P, d_p)
    rules: tuple[RuleState, ...]
    potentials: Potentials | None
    statistics: Statistics


def start(rules: Sequence[Rule], particles: Tensor) -> State:
    """The state before the first step, for particles of this shape, dtype and device."""
    zero = torch.zeros_like(particles)
    memories = tuple(rule.init(zero) for rule in rules)
    return State(0, 0, zero, zero, memories, None, Statistics())


def forget(state: State, rules: Sequence[Rule], weights_too: bool) -> State:
    """Coordinates restart: no displacement, directions, velocities, averages or potentials.

    What rules remember of the weights stays unless `weights_too`.
    """
    clean = start(rules, state.coordinates)
    memories = (
        memory if rule.of_weights and not weights_too else empty
        for rule, memory, empty in zip(rules, state.rules, clean.rules, strict=True)
    )
    return clean._replace(
        step=state.step,
        evaluations=state.evaluations,
        statistics=state.statistics,
        rules=tuple(memories),
    )


def to_dict(state: State, settings: str, seed: int) -> dict[str, Any]:
    """Tensors, numbers and strings only, so that `torch.load(weights_only=True)` reads it."""
    potentials = state.potentials
    return {
        "format": FORMAT,
        "settings": settings,
        "seed": seed,
        "step": state.step,
        "evaluations": state.evaluations,
        "coordinates": state.coordinates,
        "previous_move": state.previous_move,
        "rules": [dict(rule) for rule in state.rules],
        "potentials": [] if potentials is None else [potentials.row, potentials.column],
        "statistics": list(state.statistics),
    }


def from_dict(
    saved: Mapping[str, Any], settings: str, seed: int, rules: Sequence[Rule], like: Tensor
) -> State:
    """The state a dict describes, for particles like `like`.

    Raises:
        CheckpointError: It was saved by another format, configuration or seed, or is no state.
    """
    if not is_same(saved.get("format"), FORMAT):
        seen = show(saved.get("format"))
        raise CheckpointError(f"optimizer state has format {seen}, this version reads {FORMAT}")
    _check_parts(saved)
    if saved["settings"] != settings:
        found = to_sentence("; ".join(list_differences(str(saved["settings"]), settings)))
        raise CheckpointError(
            f"optimizer state was saved with other settings (saved → now: {found}); build the "
            "optimizer with the saved ones"
        )
    if saved["seed"] != seed:
        known = show(saved["seed"])
        raise CheckpointError(
            f"optimizer state was saved with seed {known}, this one has {seed}; build it with "
            f"seed={known}"
        )
    if saved["coordinates"].shape != like.shape:
        raise CheckpointError(
            f"optimizer state has particles {tuple(saved['coordinates'].shape)}, this model "
            f"needs {tuple(like.shape)}; load it into the model it was saved with"
        )
    _check_memories(saved, rules, like)
    potentials = saved["potentials"]
    return State(
        step=int(saved["step"]),
        evaluations=int(saved["evaluations"]),
        coordinates=saved["coordinates"].to(like).clone(),
        previous_move=saved["previous_move"].to(like).clone(),
        rules=tuple(
            _load_rule(known, rule.init(like))
            for known, rule in zip(saved["rules"], rules, strict=True)
        ),
        potentials=Potentials(*(p.clone() for p in potentials)) if potentials else None,
        statistics=Statistics(*saved["statistics"]),
    )


def is_dense(value: object) -> TypeGuard[Tensor]:
    """Whether something is a tensor that holds all of its numbers, one by one."""
    if not isinstance(value, Tensor):
        return False
    return value.layout is torch.strided and not value.is_quantized and not value.is_meta


def _is_real(value: object) -> bool:
    return is_dense(value) and value.is_floating_point()


def _is_list_of(kind: type) -> Callable[[object], bool]:
    return lambda value: isinstance(value, list) and all(isinstance(one, kind) for one in value)


_PARTS: dict[str, tuple[Callable[[Any], bool], str]] = {
    "settings": (lambda value: isinstance(value, str), "a text"),
    "seed": (is_whole, "a whole number"),
    "step": (is_count, "a whole number >= 0"),
    "evaluations": (is_count, "a whole number >= 0"),
    "coordinates": (_is_real, "a tensor of numbers"),
    "previous_move": (_is_real, "a tensor of numbers"),
    "rules": (_is_list_of(dict), "a list of dicts"),
    "potentials": (
        lambda value: (
            isinstance(value, list) and len(value) in (0, 2) and all(map(_is_real, value))
        ),
        "a list of no or two tensors",
    ),
    "statistics": (
        lambda value: (
            isinstance(value, list)
            and len(value) == len(Statistics._fields)
            and all(map(is_float, value))
        ),
        f"a list of {len(Statistics._fields)} numbers",
    ),
    "subspace": (lambda value: isinstance(value, dict), "a dict"),
}


def _check_parts(saved: Mapping[str, Any]) -> None:
    for name, (is_one, words) in _PARTS.items():
        if name not in saved:
            raise CheckpointError(f"optimizer state has no {name!r}; load what state_dict() gave")
        if not is_one(saved[name]):
            raise CheckpointError(
                f"optimizer state: {name!r} must be {words}, got {show(saved[name])}; load what "
                "state_dict() gave"
            )


def _check_memories(saved: Mapping[str, Any], rules: Sequence[Rule], like: Tensor) -> None:
    check_tensors("previous_move", {"": saved["previous_move"]}, {"": like})
    if len(saved["rules"]) != len(rules):
        raise CheckpointError(
            f"optimizer state has {len(saved['rules'])} rules, this optimizer {len(rules)}; build "
            "it as the saved one was"
        )
    for known, rule in zip(saved["rules"], rules, strict=True):
        check_tensors(f"rule {type(rule).__name__}", known, rule.init(like))


def check_tensors(what: str, saved: Mapping[str, Any], own: Mapping[str, Tensor]) -> None:
    """Refuse tensors that are not shaped and typed as one's own; there may be others beside them.

    Raises:
        CheckpointError: They are of another model or optimizer, or no tensors.
    """
    for name in {**own, **saved}:
        before = _describe(saved.get(name))
        now = _describe(own[name]) if name in own else "a tensor"
        if not before.startswith(now):
            label = f"{what} {name!r}" if name else what
            raise CheckpointError(
                f"optimizer state: {label} must be {now}, got {before}; load it into the model "
                "and optimizer it was saved with"
            )


def load_subspace(subspace: BoundSubspace, saved: Mapping[str, Any]) -> None:
    """Restore what a subspace keeps.

    Raises:
        CheckpointError: It was saved by another one.
    """
    own = {name: value for name, value in subspace.state_dict().items() if name in saved}
    check_tensors("subspace", saved, own)
    try:
        subspace.load_state_dict(saved)
    except (LookupError, RuntimeError, ValueError) as error:
        raise CheckpointError(
            f"optimizer state: its subspace is not the one of this optimizer "
            f"({type(error).__name__}: {error}); build it as the saved one was"
        ) from error


def _describe(value: object) -> str:
    if value is None:
        return "absent"
    if not is_dense(value) or value.is_complex():
        return show(value)
    kind = "numbers" if value.is_floating_point() else "whole numbers"
    return f"a tensor {tuple(value.shape)} of {kind}"


def _load_rule(saved: Mapping[str, Tensor], fresh: RuleState) -> RuleState:
    """What a rule starts with returns to the device where the rule made it."""
    devices = {name: tensor.device for name, tensor in fresh.items()}
    return {name: v.to(devices.get(name, v.device)).clone() for name, v in saved.items()}
