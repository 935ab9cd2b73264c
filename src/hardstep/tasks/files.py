"""Tasks that a Python file of one's own defines, addressed as `path/to/file.py:name`.

The file is loaded as a module under a private name, once for every state it is in, with its
folder importable meanwhile. `name` is a variable that holds a `Task`, the `name` of such a task,
or a function without arguments that makes one.
"""

import hashlib
import importlib.util
import inspect
import re
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

from torch import nn

from hardstep.data import DataSet
from hardstep.errors import ConfigError
from hardstep.names import check
from hardstep.tasks.base import Task

_HOW = "a task of your own is given as path/to/file.py:name"
_WANTED: dict[type, str] = {
    Task: "a hardstep.tasks.Task",
    DataSet: "a hardstep.data.DataSet, as hardstep.data.from_tensors makes one",
    nn.Module: "a torch.nn.Module",
}


def is_address(text: str) -> bool:
    """Whether it names a file rather than a task of ours."""
    return text.endswith(".py") or any(mark in text for mark in ":/\\")


def load(address: str) -> Task:
    """The task at the address; its name is the whole address, its functions are checked.

    Raises:
        ConfigError: The file or what it defines is at fault.
    """
    path, name = _parsed(address)
    module = _module(path)
    name, task = _named(module, path, name) if name else _only(module, path)
    return replace(
        task,
        name=f"{path}:{name}",
        data=partial(_made, task.data, DataSet, f"{path}:{name}: data"),
        model=partial(_made, task.model, nn.Module, f"{path}:{name}: model"),
    )


def run_name(task: Task) -> str:
    """What a folder of the task's runs may be called: `snn-digits`, `file-name-own`."""
    name = task.name
    if is_address(name):
        path, variable = _parsed(name)
        name = f"{path.stem}-{variable}"
    return re.sub(r"[^\w.-]+", "-", f"{name}-{task.data_name}")


def _parsed(address: str) -> tuple[Path, str]:
    match = re.fullmatch(r"(.+\.py)(?::(.+))?", address)
    if match is None:
        raise ConfigError(f"{address!r} is neither a task nor a Python file with one; {_HOW}")
    return Path(match[1]), match[2] or ""


def _module(path: Path) -> ModuleType:
    """The file as a module; loaded again only if it was changed."""
    if not path.is_file():
        where = "" if path.is_absolute() else f" in {Path.cwd()}"
        raise ConfigError(
            f"there is no file {path}{where}; if it was moved, put it back or go to the folder "
            "that the path starts from"
        )
    state = f"{path.resolve()} {path.stat().st_mtime_ns}"
    private = f"_hardstep_task_{hashlib.sha256(state.encode()).hexdigest()[:16]}"
    if private not in sys.modules:
        spec = importlib.util.spec_from_file_location(private, path.resolve())
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        with _importing(private, module), _refusing(path):
            spec.loader.exec_module(module)
    return sys.modules[private]


@contextmanager
def _importing(private: str, module: ModuleType) -> Iterator[None]:
    """Register the module, and let it import its neighbours."""
    folder = str(Path(str(module.__file__)).parent)
    sys.modules[private] = module  # dataclasses and pickle look functions and classes up there
    sys.path.insert(0, folder)
    try:
        yield
    except BaseException:
        del sys.modules[private]
        raise
    finally:
        with suppress(ValueError):  # the file may have cleaned up itself
            sys.path.remove(folder)


@contextmanager
def _refusing(path: Path) -> Iterator[None]:
    """Turn whatever the file's own code raises into one sentence with its line."""
    try:
        yield
    except (Exception, SystemExit) as error:
        reason = error.msg if isinstance(error, SyntaxError) else " ".join(str(error).split())
        raise ConfigError(
            f"{path} cannot be loaded: {type(error).__name__}{': ' if reason else ''}{reason} "
            f"({_place(error, path)})"
        ) from error


def _place(error: BaseException, path: Path) -> str:
    """The line of the file that the error comes from."""
    if isinstance(error, SyntaxError) and error.filename:
        return f"line {error.lineno} of {Path(error.filename).name}"
    own = str(path.resolve())
    lines = [f.lineno for f in traceback.extract_tb(error.__traceback__) if f.filename == own]
    return f"line {lines[-1]} of {path.name}" if lines else "before its first line"


def _tasks(module: ModuleType) -> dict[str, Task]:
    """Tasks by variable, without second variables for the same one."""
    found: dict[str, Task] = {}
    for name, value in vars(module).items():
        if isinstance(value, Task) and not any(value is other for other in found.values()):
            found[name] = value
    return found


def _makers(module: ModuleType) -> dict[str, Callable[[], Any]]:
    """Functions of the file that can be called without arguments."""
    own = {n: f for n, f in vars(module).items() if inspect.isfunction(f)}
    return {
        name: function
        for name, function in own.items()
        if function.__module__ == module.__name__ and not _required(function)
    }


def _required(function: Callable[..., Any]) -> list[str]:
    parameters = inspect.signature(function).parameters.values()
    variable = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return [p.name for p in parameters if p.default is p.empty and p.kind not in variable]


def _named(module: ModuleType, path: Path, name: str) -> tuple[str, Task]:
    """The task that a variable, a task's own name or a function of that name gives."""
    tasks, makers = _tasks(module), _makers(module)
    by_name = {task.name: task for task in tasks.values()}
    value = vars(module).get(name)
    if name in makers:
        with _refusing(path):
            value = makers[name]()
        return name, _made(lambda: value, Task, f"{path}:{name}")
    if isinstance(value, Task):
        return name, value
    if name in by_name:
        return name, by_name[name]
    if name not in vars(module):
        check(name, [*tasks, *by_name, *makers], f"task of {path}")
    raise ConfigError(
        f"{path}:{name} is of type {type(value).__name__}, not a hardstep.tasks.Task or a "
        "function without arguments that returns one"
    )


def _only(module: ModuleType, path: Path) -> tuple[str, Task]:
    """The single task of a file, under its variable."""
    tasks = _tasks(module)
    if len(tasks) == 1:
        return next(iter(tasks.items()))
    if tasks:
        named = ", ".join(f"{path}:{name}" for name in tasks)
        raise ConfigError(f"{path} defines {len(tasks)} tasks; choose one of {named}")
    raise ConfigError(
        f"{path} defines no hardstep.tasks.Task; define one, or name a function that makes one"
    )


def _made(function: Callable[..., Any], kind: type, what: str, *args: Any) -> Any:
    """What the function returns, if it is of that kind."""
    value = function(*args)
    if not isinstance(value, kind):
        raise ConfigError(f"{what} must return {_WANTED[kind]}, got {type(value).__name__}")
    return value
