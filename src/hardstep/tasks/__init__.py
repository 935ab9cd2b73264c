"""Tasks by name."""

from hardstep.errors import ConfigError
from hardstep.tasks.base import Task
from hardstep.tasks.digits import TASKS as DIGITS_TASKS
from hardstep.tasks.mnist import TASKS as MNIST_TASKS

BY_DATA = {"digits": DIGITS_TASKS, "mnist": MNIST_TASKS}


def find(name: str, data: str = "digits") -> Task:
    """The task of that name on that data.

    Raises:
        ConfigError: There is none; the message lists what there is.
    """
    if data not in BY_DATA:
        raise ConfigError(f"unknown data {data!r}; there is {', '.join(sorted(BY_DATA))}")
    tasks = BY_DATA[data]
    if name not in tasks:
        raise ConfigError(f"unknown task {name!r}; the tasks are {', '.join(sorted(tasks))}")
    return tasks[name]


__all__ = ["BY_DATA", "Task", "find"]
