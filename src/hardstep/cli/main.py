"""The `hardstep` command. Commands parse here and load torch only when they run."""

import os
import signal
import sys
import warnings
from collections.abc import Callable
from dataclasses import MISSING, Field, fields
from functools import partial
from importlib import import_module
from inspect import Parameter, Signature
from types import FrameType
from typing import Annotated, Any

import typer

from hardstep import __version__
from hardstep.cli.options import (
    CompareOptions,
    DiagnoseOptions,
    EvaluateOptions,
    MaxsatOptions,
    ReportOptions,
    SuiteOptions,
    TableOptions,
    TheoryOptions,
    TrainOptions,
    TuneOptions,
)
from hardstep.errors import HardstepError, HardstepWarning

COMMANDS: dict[str, tuple[type, str]] = {  # what is typed: its arguments, and what it calls
    "train": (TrainOptions, "train:run_train"),
    "evaluate": (EvaluateOptions, "evaluate:run_evaluate"),
    "compare": (CompareOptions, "compare:run_compare"),
    "tune": (TuneOptions, "tune:run_tune"),
    "maxsat": (MaxsatOptions, "maxsat:run_maxsat"),
    "diagnose": (DiagnoseOptions, "diagnose:run_diagnose"),
    "theory": (TheoryOptions, "theory:run_theory"),
    "report": (ReportOptions, "report:run_report"),
    "bench run": (SuiteOptions, "bench:run_suite"),
    "bench table": (TableOptions, "bench:run_table"),
}

app = typer.Typer(
    name="hardstep",
    help="Train networks and programs whose loss jumps, with forward passes only.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
bench = typer.Typer(help="Suites of comparisons, recorded run by run.", no_args_is_help=True)
app.add_typer(bench, name="bench")


def _show_version(wanted: bool) -> None:
    if wanted:
        print(__version__)
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_show_version, is_eager=True, help="Print the version and exit."
        ),
    ] = False,
) -> None:
    del version


def _add_command(name: str, options: type, target: str) -> None:
    """Make a command of a dataclass: its fields are the arguments, its docstring is the help."""
    module, function = target.split(":")

    def command(**given: Any) -> None:
        run = getattr(import_module(f"hardstep.cli.{module}"), function)
        raise typer.Exit(run(options(**given)))

    parameters = [_make_parameter(field) for field in fields(options)]
    command.__signature__ = Signature(parameters)  # type: ignore[attr-defined]  # typer reads it
    group, _, last = name.rpartition(" ")
    (bench if group else app).command(last, help=options.__doc__)(command)


def _make_parameter(field: Field[Any]) -> Parameter:
    default = field.default if field.default_factory is MISSING else field.default_factory()
    default = Parameter.empty if default is MISSING else default
    return Parameter(field.name, Parameter.KEYWORD_ONLY, default=default, annotation=field.type)


for _name, (_options, _target) in COMMANDS.items():
    _add_command(_name, _options, _target)


def main() -> None:
    """Entry point: errors of ours are one sentence and exit code 2."""
    # Before torch and numba load: threads that spin while they wait make a step many times slower
    # as soon as another process wants a core, and gain nothing worth that where none does.
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    signal.signal(signal.SIGTERM, _interrupt)
    warnings.showwarning = partial(_show_warning, warnings.showwarning)
    try:
        app()
    except HardstepError as error:
        print(f"hardstep: {error}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        sys.exit(130)


def _show_warning(
    otherwise: Callable[..., None], message: Warning | str, category: type[Warning], *place: Any
) -> None:
    """Print a warning of ours as one sentence: the line of code it names is none of the user's."""
    if issubclass(category, HardstepWarning):
        print(f"hardstep: {message}", file=sys.stderr)
    else:
        otherwise(message, category, *place)


def _interrupt(signum: int, frame: FrameType | None) -> None:
    """Do what Ctrl-C would do: `kill` and batch systems do not take a run's results with them."""
    interrupt = signal.getsignal(signal.SIGINT)
    if not callable(interrupt):  # a background job ignores Ctrl-C, but not this
        interrupt = signal.default_int_handler
    interrupt(signum, frame)
