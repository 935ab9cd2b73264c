"""What is asked of every operation of torch while it is recorded."""

from typing import Any, NamedTuple

import torch


class Traits(NamedTuple):
    """Looked up once for each operation: torch takes microseconds to answer."""

    text: str
    name: str
    writes: bool
    is_random: bool


_TRAITS: dict[int, tuple[Traits, Any]] = {}  # by identity: torch hashes an operation in Python


def describe(func: Any) -> Traits:
    """The traits of an operation."""
    known = _TRAITS.get(id(func))
    if known is None:
        traits = Traits(
            str(func),
            str(func.overloadpacket.__name__),
            bool(func._schema.is_mutable),
            torch.Tag.nondeterministic_seeded in func.tags,
        )
        known = _TRAITS[id(func)] = traits, func  # which stays, so that its place is not reused
    return known[0]


def functional_form(func: Any) -> Any:
    """`add_` -> `add`; None where there is no such twin."""
    name = str(func.overloadpacket.__name__)
    packet = getattr(torch.ops.aten, name[:-1], None) if name.endswith("_") else None
    return getattr(packet, func._overloadname, None)
