"""Theory you can run: numerical checks of the method's analytical results."""

import importlib
import pkgutil

from hardstep.theory.suite import Check, Evidence, Outcome, Run, judge, judged, registered

__all__ = ["Check", "Evidence", "Outcome", "Run", "checks", "judge", "judged"]


def checks() -> list[Check]:
    """All checks, by group and number."""
    for module in pkgutil.iter_modules(__path__):
        if module.name.startswith("group_"):
            importlib.import_module(f"{__name__}.{module.name}")
    return registered()
