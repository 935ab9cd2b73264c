"""From benchmarks/suites/maxsat.toml to single runs."""

import itertools
from typing import Any

Spec = dict[str, Any]
LISTS = (
    "variables",
    "seeds",
    "instances",
    "methods",
    "threads",
    "files",
    "variants",
)  # taken apart into runs
SINGULAR = {
    "seeds": "seed",
    "instances": "instance",
    "methods": "method",
    "files": "file",
    "variants": "variant",
}
IDENTITY = ("suite", "method", "variables", "instance", "file", "threads", "seconds", "steps",
            "evaluations", "variant", "seed")  # fmt: skip


def expand(config: Spec) -> list[Spec]:
    """Every combination of the lists of every table."""
    specs = []
    for table in config["run"]:
        names = [name for name in LISTS if isinstance(table.get(name), list)]
        fixed = {name: value for name, value in table.items() if name not in names}
        for values in itertools.product(*(table[name] for name in names)):
            chosen = {SINGULAR.get(n, n): v for n, v in zip(names, values, strict=True)}
            spec = {**fixed, **chosen}
            specs.append({"ratio": config["ratio"], "options": {}, **spec})
    return specs


def give_time(spec: Spec, records: list[Spec]) -> Spec | None:
    """A run that may take `times` the processor time `of` a method, with that time.

    None until that method is recorded for the same instance in the same suite.
    """
    if "times" not in spec:
        return spec
    same = {"suite": spec["suite"], "method": spec["of"], "variables": spec["variables"]}
    taken = [r["cpu_seconds"] for r in records if same.items() <= r.items()]
    if not taken:
        return None
    return {**spec, "cpu_limit": spec["times"] * sum(taken) / len(taken)}


def without_seed(spec: Spec) -> str:
    """What runs that differ in nothing but the seed have in common."""
    return str(sorted((name, value) for name, value in spec.items() if name != "seed"))


def key(spec: Spec) -> tuple[Any, ...]:
    """What makes a run the same run."""
    return (*(spec.get(name) for name in IDENTITY), str(sorted(spec["options"].items())))
