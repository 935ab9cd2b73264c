"""Tasks by name, and tasks that a user's file defines: `path/to/file.py:name`."""

from hardstep._checks import check_name
from hardstep.data import SST2_SMOLLM2
from hardstep.errors import ConfigError
from hardstep.tasks import files
from hardstep.tasks.builtin import ON_IMAGES
from hardstep.tasks.forecasts import FORECASTS
from hardstep.tasks.heads import HEADS, SMOLLM2_HEADS
from hardstep.tasks.policies import DATA as POLICIES
from hardstep.tasks.policies import NAMES, STEMS, find_policy, is_policy
from hardstep.tasks.task import Task, stop_at_goal
from hardstep.tasks.texts import TEXTS

OTHER_NAMES = {"mnist": "mlp"}  # the paper's name for the plain network, whatever its data
DEFAULT_DATA = "digits"  # of commands
OWN_DATA = {**FORECASTS, **HEADS, **TEXTS}  # tasks that bring their data
BY_DATA = {**ON_IMAGES, SST2_SMOLLM2.name: SMOLLM2_HEADS}


def find(name: str, data: str = DEFAULT_DATA) -> Task:
    """The task of that name on that data, or the one that a file defines.

    Args:
        name: A name of ours, `file.py:name`, or `file.py` if it defines a single task.
        data: Of our tasks; one from a file brings its own.

    Returns:
        The task. Its `name` finds it again, and `data_name` is what its data are called.

    Raises:
        ConfigError: There is none, and the message says what there is; or the file is at fault.
    """
    if is_policy(name):
        if data not in (DEFAULT_DATA, POLICIES):
            raise ConfigError(
                f"{name} plays an environment, so data {data!r} cannot be chosen for it; leave "
                "--data out"
            )
        return find_policy(name)
    if files.is_address(name):
        return _refuse_other_data(files.load(name), data)
    if name in OWN_DATA and name not in BY_DATA.get(data, ()):
        return _refuse_other_data(OWN_DATA[name], data)
    check_name(data, sorted(BY_DATA), "data set")
    name = OTHER_NAMES.get(name, name)
    known = sorted({*set().union(*BY_DATA.values()), *STEMS, *OWN_DATA})
    check_name(name, known, "task")
    if name not in BY_DATA[data]:
        raise ConfigError(
            f"{name} comes with data {' or '.join(_list_others(name))}, got {data!r}; on {data} "
            f"there are {' and '.join(sorted(BY_DATA[data]))}"
        )
    return BY_DATA[data][name]


def _list_others(name: str) -> list[str]:
    """The data that a task of this name can be trained on by naming them."""
    return [data for data, tasks in BY_DATA.items() if name in tasks]


def _refuse_other_data(task: Task, data: str) -> Task:
    """A task that brings its data, unless others were chosen for it."""
    if data not in (DEFAULT_DATA, task.data_name):
        others = "".join(f", or name {other}" for other in _list_others(task.name))
        raise ConfigError(
            f"{task.name} brings its own data ({task.data_name!r}), so data {data!r} cannot be "
            f"chosen for it; leave --data out{others}"
        )
    return task


__all__ = ["BY_DATA", "NAMES", "OTHER_NAMES", "OWN_DATA", "Task", "find", "stop_at_goal"]
