"""Changes of nested values: keys dropped, retyped, filled with numbers and texts at the edge."""

import copy
import json
import math
from collections.abc import Callable, Iterator
from random import Random
from typing import Any

import torch
from hypothesis import strategies as st
from torch import Tensor

from tests.fuzz.damage import TEXTS

EDGES: tuple[Any, ...] = (
    *(0, -1, 1, 2**31, -(2**31) - 1, 2**53 + 1, 2**63, -(2**63) - 1, 10**400, 0.5),
    *(math.nan, math.inf, -math.inf, 1e308, -1e308, 5e-324, True, False, None),
    *([], {}, [[]], [0, 1], {"a": 1}, {"": None}, [None], ["x"], [1e308, -1e308]),
    *TEXTS,
)
TENSORS: tuple[Callable[[Tensor], Tensor], ...] = (
    lambda t: t[:0],
    lambda t: t.flatten()[:1],
    lambda t: t.unsqueeze(0),
    lambda t: t.double(),
    lambda t: t.long(),
    lambda t: t.bool(),
    lambda t: t.to(torch.complex64),
    lambda t: torch.full_like(t, math.nan) if t.is_floating_point() else t - 1,
    lambda t: torch.full_like(t, math.inf) if t.is_floating_point() else t + 2**40,
    lambda t: torch.tensor(0.0),
    lambda t: t.to_sparse(),
    lambda t: t.half(),
)
values = st.recursive(
    st.sampled_from(EDGES) | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3)
    ),
    max_leaves=6,
)


def damage_tree(tree: Any, rng: Random) -> Any:
    """A copy with one change, seldom a few."""
    tree = copy.deepcopy(tree)
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        places = list(_places(tree))
        if places:
            _change(*rng.choice(places), rng)
    return tree


def _places(tree: Any) -> Iterator[tuple[Any, Any]]:
    """Every value below the root, as its container and key."""
    if isinstance(tree, dict | list):
        for key in list(tree) if isinstance(tree, dict) else range(len(tree)):
            yield tree, key
            yield from _places(tree[key])


def _change(parent: Any, key: Any, rng: Random) -> None:
    kind = rng.choice(("drop", "edge", "edge", "edge", "wrap", "rename", "swap", "nest"))
    value = parent[key]
    if kind == "drop":
        del parent[key]
    elif kind == "rename" and isinstance(parent, dict):
        parent[rng.choice(TEXTS)] = parent.pop(key)
    elif kind == "swap":
        other = rng.choice(list(parent) if isinstance(parent, dict) else range(len(parent)))
        parent[key], parent[other] = parent[other], parent[key]
    elif kind == "wrap":
        parent[key] = rng.choice(([value], {"a": value}, [value, value], str(value)))
    elif kind == "nest":
        for _ in range(90):
            value = [value]
        parent[key] = value
    elif isinstance(value, Tensor) and rng.random() < 0.7:
        parent[key] = _other_tensor(value, rng)
    else:
        parent[key] = copy.deepcopy(rng.choice(EDGES))


def _other_tensor(value: Tensor, rng: Random) -> Tensor:
    try:
        return rng.choice(TENSORS)(value)
    except (RuntimeError, IndexError):  # it has no such form
        return torch.zeros(0)


def from_json(text: bytes) -> Any:
    """What a file of ours says, less its checksum: a file from before there were any is read."""
    tree = json.loads(text)
    tree.pop("checksum", None)
    return tree


def to_json(tree: Any) -> bytes:
    """One line, as permissive as Python is: NaN, lone surrogates, any number of digits."""
    return json.dumps(tree).encode() + b"\n"


def to_toml(tree: dict[str, Any]) -> bytes:
    """Top-level keys a line each, everything else inline; only None has no form."""
    lines = (f"{json.dumps(key)} = {_inline(value)}" for key, value in tree.items())
    return "\n".join(lines).encode("utf-8", "surrogatepass") + b"\n"


def _inline(value: Any) -> str:
    if isinstance(value, dict):
        inside = ", ".join(f"{json.dumps(key)} = {_inline(item)}" for key, item in value.items())
        return f"{{{inside}}}"
    if isinstance(value, list):
        return f"[{', '.join(map(_inline, value))}]"
    if isinstance(value, float):
        return str(value)  # nan and inf are words of TOML
    return json.dumps(value)
