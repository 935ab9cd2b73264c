"""What a kernel does again and again, such as at every time step, as functions.

A piece of text is compiled once for all the places where it stands: what it defines is renamed in
the order of its lines, and what it reads from outside becomes a parameter.
"""

import re
from collections.abc import Mapping
from typing import NamedTuple

from hardstep.evaluation.fused.emit_vectors import Value

_NAME = re.compile(r"%[\w.]+")
_DEFINED = re.compile(r"^ *(%[\w.]+) = ", re.MULTILINE)
_LABEL = re.compile(r"^([\w.]+):", re.MULTILINE)


class Outlined(NamedTuple):
    """A function without its name, and what it reads here, in the order of its parameters."""

    result: str  # its type
    text: str
    outside: list[Value]


def outline_loop(lines: list[str], before: str, after: str, types: Mapping[Value, str]) -> Outlined:
    """A loop that is entered from one block and left for another, as a function.

    Args:
        lines: Its instructions, from the branch into it to the branch out of it.
        before: The label of the block it is entered from.
        after: The label of the block it is left for.
        types: Of what it may read from outside.
    """
    return _rename([*lines, "exit:", "  ret void"], "void", types, before, after)


def outline_value(
    lines: list[str], result: Value, typ: str, types: Mapping[Value, str]
) -> Outlined:
    """Instructions without branches that find a value, as a function."""
    return _rename([*lines, f"  ret {typ} {result}"], typ, types, "entry", "exit")


def _rename(
    lines: list[str], result: str, types: Mapping[Value, str], before: str, after: str
) -> Outlined:
    body = "\n".join(lines)
    own = set(_DEFINED.findall(body)) | {f"%{label}" for label in _LABEL.findall(body)}
    renamed = {f"%{before}": "%entry", f"%{after}": "%exit", "%exit": "%exit"}
    outside: list[Value] = []
    for name in dict.fromkeys(_NAME.findall(body)):
        if name in renamed:
            continue
        if name in own:
            renamed[name] = f"%n{len(renamed)}"
        else:
            renamed[name] = f"%x{len(outside)}"
            outside.append(name)
    body = _NAME.sub(lambda found: renamed[found[0]], body)
    body = _LABEL.sub(lambda found: renamed[f"%{found[1]}"][1:] + ":", body)
    parameters = ", ".join(f"{types[name]} {renamed[name]}" for name in outside)
    return Outlined(result, f"({parameters}) #0 {{\nentry:\n{body}\n}}", outside)
