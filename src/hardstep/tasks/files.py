"""Tasks that a user's Python file defines, addressed as `path/to/file.py:name`.

The file is loaded as a module under a private name, once for every state it is in, with its
folder importable meanwhile. `name` is a variable that holds a `Task`, the `name` of such a task,
or a function without arguments that makes one.
"""

import hashlib
import importlib.util
import inspect
import os
import re
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from textwrap import shorten
from types import FunctionType, ModuleType
from typing import Any, TypeGuard, TypeVar

from torch import nn

from hardstep._checks import check_name
from hardstep.data import DataSet
from hardstep.errors import ConfigError
from hardstep.optim import Settings
from hardstep.tasks.task import Task

Kind = TypeVar("Kind")
MOST_CHARACTERS = 300  # quoted of an error; torch and others have much to say
_HOW = "a task of your own is given as path/to/file.py:name"
_EXPECTED: dict[type, str] = {
    Task: "a hardstep.tasks.Task",
    DataSet: "a hardstep.data.DataSet, as hardstep.data.from_tensors makes one",
    nn.Module: "a torch.nn.Module",
    Settings: "a hardstep.Settings, as hardstep.presets make them",
}


def is_address(text: str) -> bool:
    """Whether it names a file rather than a task of ours."""
    return not text.startswith("gym:") and (
        text.endswith(".py") or any(mark in text for mark in ":/\\")
    )


def load(address: str) -> Task:
    """The task at the address; its name is the whole address, its functions are checked.

    Raises:
        ConfigError: The file or what it defines is at fault.
    """
    path, name = _parse(address)
    module = _load_module(path)
    name, task = _find_named(module, path, name) if name else _find_only(module, path)
    made = {"data": DataSet, "model": nn.Module, "settings": Settings, "twin": nn.Module}
    checked: dict[str, Any] = {
        field: partial(_make, path, getattr(task, field), kind, f"{path}:{name}: {field}")
        for field, kind in made.items()
        if getattr(task, field) is not None
    }
    return replace(task, name=f"{path}:{name}", **checked)


def path_of(address: str) -> Path:
    """The file that an address names; nothing is read."""
    return _parse(address)[0]


def file_of(task: Task) -> Path:
    """The file that a task with an address is from."""
    return path_of(task.name)


def run_name(task: Task) -> str:
    """What a folder of the task's runs may be called: `snn-digits`, `file-name-own`."""
    name = task.name
    if is_address(name):
        path, variable = _parse(name)
        name = f"{path.stem}-{variable}"
    return re.sub(r"[^\w.-]+", "-", f"{name}-{task.data_name}")


def _parse(address: str) -> tuple[Path, str]:
    match = re.fullmatch(r"(.+\.py)(?::(.+))?", address)
    if match is None:
        raise ConfigError(f"{address!r} is neither a task nor a Python file with one; {_HOW}")
    return Path(match[1]), match[2] or ""


def _load_module(path: Path) -> ModuleType:
    """The file as a module; loaded again only if it was changed."""
    if not os.path.isfile(path):  # nor a pipe, which nobody may ever write to
        where = "" if path.is_absolute() else f" in {os.getcwd()}"
        raise ConfigError(
            f"there is no file {path}{where}; if it was moved, put it back or go to the folder "
            "that the path starts from"
        )
    state = f"{path.resolve()} {path.stat().st_mtime_ns}"
    private = f"_hardstep_task_{hashlib.sha256(os.fsencode(state)).hexdigest()[:16]}"
    if private not in sys.modules:
        spec = importlib.util.spec_from_file_location(private, path.resolve())
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        with _import_beside(private, module), translate_errors(f"{path} cannot be loaded", path):
            spec.loader.exec_module(module)
        return module  # it may have removed itself from the modules
    return sys.modules[private]


@contextmanager
def _import_beside(private: str, module: ModuleType) -> Iterator[None]:
    """Register the module, and let it import its neighbors."""
    folder = str(Path(str(module.__file__)).parent)
    sys.modules[private] = module  # dataclasses and pickle look functions and classes up there
    sys.path.insert(0, folder)
    try:
        yield
    except BaseException:
        sys.modules.pop(private, None)
        raise
    finally:
        with suppress(ValueError):  # the file may have cleaned up itself
            sys.path.remove(folder)


def _list_tasks(module: ModuleType) -> dict[str, Task]:
    """Tasks by variable, without second variables for the same one."""
    found: dict[str, Task] = {}
    for name, value in vars(module).items():
        if _is(value, Task) and not any(value is other for other in found.values()):
            found[name] = value
    return found


def _list_makers(module: ModuleType) -> dict[str, Callable[[], Any]]:
    """Functions of the file that can be called without arguments."""
    own = {n: f for n, f in vars(module).items() if _is(f, FunctionType)}
    return {
        name: function
        for name, function in own.items()
        if function.__module__ == module.__name__ and not _list_required(function)
    }


def _is(value: Any, kind: type[Kind]) -> TypeGuard[Kind]:
    """As `isinstance`, without asking the object, whose answer is a user's code."""
    return issubclass(type(value), kind)


def _list_required(function: Callable[..., Any]) -> list[str]:
    parameters = inspect.signature(function).parameters.values()
    variable = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return [p.name for p in parameters if p.default is p.empty and p.kind not in variable]


def _find_named(module: ModuleType, path: Path, name: str) -> tuple[str, Task]:
    """The task that a variable, a task's own name or a function of that name gives."""
    tasks, makers = _list_tasks(module), _list_makers(module)
    by_name = {task.name: task for task in tasks.values()}
    value = vars(module).get(name)
    if name in makers:
        with translate_errors(f"{path} cannot be loaded", path):
            value = makers[name]()
        return name, _check_kind(value, Task, f"{path}:{name}")
    if _is(value, Task):
        return name, value
    if name in by_name:
        return name, by_name[name]
    if name not in vars(module):
        _check_known(name, [*tasks, *by_name], makers, path)
    raise ConfigError(
        f"{path}:{name} is of type {type(value).__name__}, not a hardstep.tasks.Task or a "
        "function without arguments that returns one"
    )


def _check_known(name: str, tasks: list[str], makers: Iterable[str], path: Path) -> None:
    """Refuse a name that the file does not have; whether a function makes a task is not known."""
    near = get_close_matches(name, makers, n=1)
    if tasks or near:
        check_name(name, dict.fromkeys([*tasks, *near]), f"task of {path}")
    raise ConfigError(
        f"no task of {path} is called {name!r}; it has the functions {', '.join(makers) or 'none'}"
    )


def _find_only(module: ModuleType, path: Path) -> tuple[str, Task]:
    """The single task of a file, under its variable."""
    tasks = _list_tasks(module)
    if len(tasks) == 1:
        return next(iter(tasks.items()))
    if tasks:
        named = ", ".join(f"{path}:{name}" for name in tasks)
        raise ConfigError(f"{path} defines {len(tasks)} tasks; choose one of {named}")
    raise ConfigError(
        f"{path} defines no hardstep.tasks.Task; define one, or name a function that makes one"
    )


def _make(path: Path, function: Callable[..., Any], kind: type, what: str, *args: Any) -> Any:
    """What the user's function returns, if it does and that is of the kind."""
    with translate_errors(f"{what} cannot be made", path):
        value = function(*args)
    return _check_kind(value, kind, what)


def _check_kind(value: Any, kind: type, what: str) -> Any:
    if not _is(value, kind):
        raise ConfigError(f"{what} must return {_EXPECTED[kind]}, got {type(value).__name__}")
    return value


@contextmanager
def translate_errors(what: str, path: Path, way_out: str = "") -> Iterator[None]:
    """Whatever a user's code raises, as one sentence: what failed, why, and on which line.

    Args:
        what: Was tried: "own.py:small: data cannot be made".
        path: The user's file, whose line is named.
        way_out: What to do, if it is known.

    Raises:
        ConfigError: The code inside raised, whatever it was.
    """
    try:
        yield
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        reason = shorten(_quote(error), MOST_CHARACTERS, placeholder=" …").rstrip(".")
        line = _find_line(error, path)
        raise ConfigError(
            f"{what}: {type(error).__name__}{': ' if reason else ''}{reason}"
            f"{f' ({line})' if line else ''}{f'; {way_out}' if way_out else ''}"
        ) from error


def _quote(error: BaseException) -> str:
    """What it says, if it can."""
    try:
        return error.msg if isinstance(error, SyntaxError) else str(error)
    except Exception:
        return ""


def _find_line(error: BaseException, path: Path) -> str:
    """The line of the file that the error comes from; empty if it is from elsewhere."""
    if isinstance(error, SyntaxError) and error.filename:
        return f"line {error.lineno} of {Path(error.filename).name}"
    own = str(path.resolve())
    lines = [f.lineno for f in traceback.extract_tb(error.__traceback__) if f.filename == own]
    return f"line {lines[-1]} of {path.name}" if lines else ""
