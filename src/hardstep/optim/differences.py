"""What differs between two described settings, field by field."""

import re

ABSENT = "absent"


def differences(saved: str, now: str, name: str = "settings") -> list[str]:
    """`field: saved → now` for the innermost fields that differ; texts as `describe` makes them."""
    if saved == now:
        return []
    left, right = _fields(saved), _fields(now)
    if left is None or right is None or left[0] != right[0]:
        return [f"{name}: {saved} → {now}"]
    inside = "" if name == "settings" else name
    found = []
    for field in left[1] | right[1]:  # in order
        path = f"{inside}{'' if field.startswith('[') or not inside else '.'}{field}"
        found += differences(left[1].get(field, ABSENT), right[1].get(field, ABSENT), path)
    return found


def _fields(text: str) -> tuple[str, dict[str, str]] | None:
    """The kind and the parts of `Kind(a=…, b=…)` or `[…, …]`, if the text is one of these."""
    match = re.fullmatch(r"([\w.]*)([(\[])(.*)([)\]])", text, re.DOTALL)
    if match is None:
        return None
    kind, bracket, inner, _ = match.groups()
    parts = _split(inner)
    if bracket == "[":
        return f"list of {len(parts)}", {f"[{i}]": part for i, part in enumerate(parts)}
    pairs = [re.fullmatch(r"(\w+)=(.*)", part, re.DOTALL) for part in parts]
    if not all(pairs):
        return None
    return kind, {pair[1]: pair[2] for pair in pairs if pair}


def _split(text: str) -> list[str]:
    """Cut at the commas that are in no brackets."""
    parts, depth = [""], 0
    for character in text:
        depth += (character in "([{") - (character in ")]}")
        if character == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += character
    return [part.strip() for part in parts if part.strip()]
