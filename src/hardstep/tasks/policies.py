"""Tasks that train a policy in an environment; their names say how hard the policy is.

    cartpole, acrobot, mountaincar, pendulum     compiled here
    swimmer, hopper                              MuJoCo
    gym:ID                                       any environment of gymnasium

    cartpole            ReLU hidden units
    cartpole-int8       hidden units rounded to eight bits; a linear policy has rounded weights
    cartpole-binary     hidden units that are signs

The data of such a task are seeds of episodes: a step plays some of them, the test part is a hundred
that no training uses. A run's last policy is its result; validation only shows how it goes, and its
interactions are not counted. One set of settings serves all environments.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from hardstep import seeds
from hardstep._checks import check_name
from hardstep.data import DataSet, Split
from hardstep.errors import ConfigError
from hardstep.optim.presets import policy
from hardstep.rl.agent import Agent, minus_return
from hardstep.rl.compiled import Classic
from hardstep.rl.environments import Environment
from hardstep.rl.policies import Policy
from hardstep.tasks.task import Task
from hardstep.training import Metric

DATA = "gymnasium"
PRECISIONS = ("float", "int8", "binary")
FIRST_TEST, NUM_TEST = 1_000_000, 100  # seeds of episodes that score the last policy
FIRST_VALID, NUM_VALID = 2_000_000, 20
FIRST_TRAIN, NUM_TRAIN = 10_000_000, 2**15
MOST_SEED = 2**31 - 1
EPISODES = 4  # of a candidate in a step; a step more is worth more than an episode more


def _mean_return(returns: Tensor, target: Tensor) -> Tensor:
    del target
    return returns.double().mean()


RETURN = Metric("return", _mean_return, higher_is_better=True)


@dataclass(frozen=True)
class _Played:
    """An environment as a task sees it."""

    make: Callable[[], Environment]
    title: str
    steps: int
    goal: float | None = None  # return that cannot be surpassed
    hidden: int = 16
    episodes: int = EPISODES


def _open(name: str) -> Environment:
    """Through MuJoCo's batch where it can, else through gymnasium."""
    from hardstep.rl.mujoco import open_mujoco

    return open_mujoco(name)


# A thousand steps from nearly one start: a second episode would tell little.
_CONTROL = partial(_Played, hidden=0, episodes=1)
_ENVIRONMENTS = {
    "cartpole": _Played(partial(Classic, "CartPole-v1"), "balance a pole on a cart", 600, 500.0),
    "acrobot": _Played(partial(Classic, "Acrobot-v1"), "swing a two-link arm up", 800),
    "mountaincar": _Played(partial(Classic, "MountainCar-v0"), "drive out of a valley", 300),
    "pendulum": _Played(partial(Classic, "Pendulum-v1"), "swing a pendulum up", 600),
    "swimmer": _CONTROL(partial(_open, "Swimmer-v5"), "make a three-link swimmer swim", 220),
    "hopper": _CONTROL(partial(_open, "Hopper-v5"), "make a one-legged robot hop", 800),
}
STEMS = tuple(_ENVIRONMENTS)
NAMES = tuple(
    f"{name}{'' if precision == 'float' else f'-{precision}'}"
    for name in _ENVIRONMENTS
    for precision in PRECISIONS
)


def is_policy(name: str) -> bool:
    """Whether a name is of a task that trains a policy."""
    return name.startswith("gym:") or name in NAMES


def name_policy(name: str, precision: str) -> str:
    """The name of a task at a precision: `cartpole-int8`, `gym:CartPole-v1:int8`.

    Raises:
        ConfigError: There is no such precision, or the task trains no policy.
    """
    check_name(precision, PRECISIONS, "precision")
    if not is_policy(name):
        raise ConfigError(
            f"--precision is of a policy's task, such as cartpole, got {precision!r} for {name}; "
            "leave it out"
        )
    if precision == "float":
        return name
    return f"{name}{':' if name.startswith('gym:') else '-'}{precision}"


def find_policy(name: str) -> Task:
    """The task of that name."""
    if name.startswith("gym:"):
        identifier, _, precision = name.removeprefix("gym:").partition(":")
        precision = precision or "float"
        check_name(precision, PRECISIONS, "precision")
        played = _Played(partial(_open, identifier), identifier, 400)
    else:
        stem, _, precision = name.partition("-")
        precision, played = precision or "float", _ENVIRONMENTS[stem]
    return _make_task(name, played, precision)


def _make_task(name: str, played: _Played, precision: str) -> Task:
    kind = "linear policy" if not played.hidden else f"policy of {played.hidden} units"
    return Task(
        name=name,
        title=f"{played.title}: {kind}, {precision}",
        data=episodes,
        model=partial(make_agent, played.make, played.hidden, precision),
        settings=policy,
        steps=played.steps,
        batch_size=played.episodes,
        loss_fn=minus_return,
        metric=RETURN,
        data_name=DATA,
        selects=False,
        goal=None if played.goal is None else -played.goal,
    )


def make_agent(make: Callable[[], Environment], hidden: int, precision: str) -> Agent:
    """A new agent; it scales observations by what training has seen.

    Args:
        make: The environment.
        hidden: Units of the policy; 0 for a linear one.
        precision: Of the hidden units, or of the weights of a linear policy.
    """
    environment = make()
    activation = "relu" if precision == "float" or not hidden else precision
    weights = "float" if hidden else precision
    shape = (environment.observations, environment.space, hidden)
    made = Policy(*shape, activation, weights, normalize=True)
    return Agent(made, environment)


def episodes(seed: int) -> DataSet:
    """Seeds of episodes: those of training depend on the run's seed, the others do not."""
    draws = torch.randint(
        FIRST_TRAIN, MOST_SEED, (NUM_TRAIN,), generator=seeds.generator(seed, "episodes")
    )
    valid = torch.arange(FIRST_VALID, FIRST_VALID + NUM_VALID)
    test = torch.arange(FIRST_TEST, FIRST_TEST + NUM_TEST)
    return DataSet("episodes", _split(draws), _split(valid), _split(test))


def _split(numbers: Tensor) -> Split:
    return Split(numbers, torch.zeros(len(numbers)))  # an episode has no label
