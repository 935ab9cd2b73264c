"""What a run remembers between steps, and its form on disk.

The tensors being trained are not part of it: they are the model's, and saved with it.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from hardstep.errors import CheckpointError
from hardstep.optim.report import Statistics
from hardstep.optim.rules import Rule, RuleState
from hardstep.optim.settings import list_differences
from hardstep.solvers import Potentials

FORMAT = 2


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
        CheckpointError: It was saved by another format, configuration or seed.
    """
    if saved.get("format") != FORMAT:
        raise CheckpointError(
            f"optimizer state has format {saved.get('format')!r}, this version reads {FORMAT}"
        )
    if saved["settings"] != settings:
        found = "; ".join(list_differences(str(saved["settings"]), settings))
        raise CheckpointError(
            f"optimizer state was saved with other settings (saved → now: {found}); build the "
            "optimizer with the saved ones"
        )
    if saved["seed"] != seed:
        raise CheckpointError(
            f"optimizer state was saved with seed {saved['seed']}, this one has {seed}; "
            f"build it with seed={saved['seed']}"
        )
    if saved["coordinates"].shape != like.shape:
        raise CheckpointError(
            f"optimizer state has particles {tuple(saved['coordinates'].shape)}, this model "
            f"needs {tuple(like.shape)}; load it into the model it was saved with"
        )
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


def _load_rule(saved: Mapping[str, Tensor], fresh: RuleState) -> RuleState:
    """What a rule starts with returns to the device where the rule made it."""
    devices = {name: tensor.device for name, tensor in fresh.items()}
    return {name: v.to(devices.get(name, v.device)).clone() for name, v in saved.items()}
