"""From benchmarks/suites/maxsat.toml to single runs."""

import itertools
from typing import Any

Spec = dict[str, Any]
LISTS = (
    "variables",
    "instances",
    "methods",
    "threads",
    "files",
    "variants",
)  # taken apart into runs
SINGULAR = {
    "instances": "instance",
    "methods": "method",
    "files": "file",
    "variants": "variant",
}
IDENTITY = ("suite", "method", "variables", "instance", "file", "threads", "seconds", "steps",
            "evaluations", "variant")  # fmt: skip


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


def key(spec: Spec) -> tuple[Any, ...]:
    """What makes a run the same run."""
    return (*(spec.get(name) for name in IDENTITY), str(sorted(spec["options"].items())))
