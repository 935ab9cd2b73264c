"""The commands: they parse here and load torch only when they run."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import copy
from dataclasses import MISSING, Field, fields
from importlib import import_module
from inspect import Parameter, Signature
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, get_args

import typer
from typer.core import TyperGroup
from typer.models import OptionInfo

from hardstep import __version__
from hardstep._checks import MOST, is_number
from hardstep._reading import check_path
from hardstep._signals import INTERRUPTED, EndAtOnce
from hardstep._text import to_sentence
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
from hardstep.errors import ConfigError

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


OPTIONAL = {"--ray": "local"}  # options that may go without their value, and what it is then
_UsageError: Any = typer.BadParameter.__base__  # typer does not export it


class _Program(TyperGroup):
    """Shows what was typed without control characters: typer quotes it past our own output."""

    def make_context(self, info_name: Any, args: Any, *more: Any, **kwargs: Any) -> Any:
        with _quote_printable():
            return super().make_context(info_name, _fill_in(args), *more, **kwargs)

    def invoke(self, *args: Any, **kwargs: Any) -> Any:
        with _quote_printable():
            return super().invoke(*args, **kwargs)


def _fill_in(args: list[str]) -> list[str]:
    """What was typed, with values of options that may go without; typer knows no such options."""
    filled = []
    for word, after in pairwise([*args, "-"]):
        filled.append(word)
        if word in OPTIONAL and after.startswith("-"):
            filled.append(OPTIONAL[word])
    return filled


@contextmanager
def _quote_printable() -> Iterator[None]:
    try:
        yield
    except _UsageError as error:
        error.message = to_sentence(error.message)
        raise


app = typer.Typer(
    name="hardstep",
    cls=_Program,
    help="Train networks and programs whose loss jumps, with forward passes only.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
bench = typer.Typer(help="Run suites of comparisons and print their tables.", no_args_is_help=True)
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
            "--version",
            callback=_show_version,
            is_eager=True,
            metavar="",  # it takes no value
            help="Print the version and exit.",
        ),
    ] = False,
) -> None:
    del version


def _add_command(name: str, options: type, target: str) -> None:
    """Make a command of a dataclass: its fields are the arguments, its docstring is the help."""
    module, function = target.split(":")

    def command(**given: Any) -> None:
        with EndAtOnce():
            run = getattr(import_module(f"hardstep.cli.{module}"), function)
        for name, value in given.items():
            _check_number(name, value)
        try:
            code = run(options(**given))
        except KeyboardInterrupt:
            print("hardstep: interrupted", file=sys.stderr)
            code = INTERRUPTED
        raise typer.Exit(code)

    parameters = [_make_parameter(field) for field in fields(options)]
    command.__signature__ = Signature(parameters)  # type: ignore[attr-defined]  # typer reads it
    group, _, last = name.rpartition(" ")
    (bench if group else app).command(last, help=options.__doc__)(command)


def _check_number(name: str, value: Any) -> None:
    """Refuse a number that no counter and no clock can hold; the command checks the rest."""
    if is_number(value) and not -MOST < value < MOST:
        option = name.replace("_", "-")
        raise ConfigError(f"--{option} must be a number between -2^63 and 2^63, got {value}")


def _make_parameter(field: Field[Any]) -> Parameter:
    default = field.default if field.default_factory is MISSING else field.default_factory()
    default = Parameter.empty if default is MISSING else default
    kind, info = get_args(field.type)
    if Path in (kind, *get_args(kind)):  # also of Path | None and list[Path]
        info = copy(info)
        info.parser = _make_parser(field.name, isinstance(info, OptionInfo))
    annotation = Annotated[kind, info]  # type: ignore[valid-type]  # typer reads it
    return Parameter(field.name, Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def _make_parser(name: str, is_option: bool) -> Callable[[str | Path], Path]:
    """What reads a path; it is called as the help is to call its type."""

    def path(text: str | Path) -> Path:
        return check_path(text, f"--{name.replace('_', '-')}" if is_option else name)

    return path


for _name, (_options, _target) in COMMANDS.items():
    _add_command(_name, _options, _target)
