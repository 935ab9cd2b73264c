"""`hardstep theory`: run the checks, print one line each, and exit 0 only if all are sound."""

import json

from hardstep._checks import suggest
from hardstep._files import check_writable, provenance, write_text
from hardstep.cli.options import TheoryOptions
from hardstep.cli.output import print
from hardstep.errors import ConfigError
from hardstep.theory import Check, Setup, judge, load_checks, report


def run_theory(options: TheoryOptions) -> int:
    """Run, print, write; returns the exit code."""
    wanted = select(load_checks(), options.only, options.trained)
    for path, option in ((options.json, "--json"), (options.html, "--html")):
        if path is not None:
            check_writable(path, option)
    setup = Setup(options.seed, quick=not options.full)
    outcomes = []
    for check in wanted:
        outcomes.append(judge(check, setup))
        print(report.format_line(outcomes[-1]), flush=True)
    print(report.summarize(outcomes))
    source = provenance()
    if options.json is not None:
        rows = [outcome.as_dict() for outcome in outcomes]
        write_text(options.json, json.dumps({"checks": rows, **source}, indent=1) + "\n")
    if options.html is not None:
        write_text(options.html, report.write_page(outcomes, str(source["command"])))
    return 0 if all(outcome.sound for outcome in outcomes) else 1


def select(known: list[Check], only: str, trained: bool) -> list[Check]:
    """The checks of the groups or identifiers asked for, separated by commas; all without any.

    Protocols on trained networks take minutes and are left out unless asked for, also by name.
    """
    if not only:
        return [check for check in known if trained or check.kind != "P"]
    names = {check.id for check in known} | {check.group for check in known}
    wanted = {name.strip() for name in only.split(",")}
    for name in sorted(wanted - names):
        hint = suggest(name, sorted(names), f"groups are {_list_groups(known)}")
        raise ConfigError(f"--only: there is no check or group {name!r}; {hint}")
    return [
        check
        for check in known
        if check.id in wanted or (check.group in wanted and (trained or check.kind != "P"))
    ]


def _list_groups(known: list[Check]) -> str:
    return ", ".join(sorted({check.group for check in known}))
