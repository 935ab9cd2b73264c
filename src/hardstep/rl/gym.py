"""Any environment of gymnasium's, played by worker processes.

    Gym("CartPole-v1")                an environment that gymnasium knows
    Gym(make_mine)                    a function that makes one, or a vector environment
    Gym("CartPole-v1", processes=0)   in this process

Every pair of a policy and a seed is an episode of its own; workers take pairs as they become free.
"""

from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

import numpy as np

from hardstep._checks import check_count, is_count, show, suggest
from hardstep.errors import ConfigError, HardstepError, HardstepWarning, warn
from hardstep.rl.environments import Episodes
from hardstep.rl.gym_play import Outcome, Player, make, quote, silence
from hardstep.rl.gym_spaces import check_seeding, count_observations, read_actions
from hardstep.rl.gym_workers import Crew, pack
from hardstep.rl.spaces import Space
from hardstep.rl.stacks import Stack

HORIZON = 10_000  # steps of an episode, where the environment sets no limit
EXTRA = "pip install 'hardstep[rl]'"


class Gym:
    """An environment of gymnasium's.

    Args:
        source: Its ID, or a function without arguments that makes it or a vector environment.
        processes: Workers that play it; 0 to play in this process.
        squash: Whether numbers are squashed between the bounds of actions, rather than clipped.

    Raises:
        ConfigError: There is no such environment, or policies cannot play it.
    """

    def __init__(
        self, source: str | Callable[[], Any], processes: int = 2, squash: bool = False
    ) -> None:
        check_count("Gym: processes", processes, 0)
        self._source = _find(source)
        self._processes = processes
        environment = _make(self._source)
        try:
            self._read(environment, squash)
        finally:
            with silence():
                environment.close()
        self._parcel = pack(self._source, self.name, self.horizon) if processes else None
        self._player: Player | None = None
        self._crew: Crew | None = None
        self._has_warned = False

    def _read(self, environment: Any, squash: bool) -> None:
        spec = environment.spec
        self._name = spec.id if spec is not None else type(environment.unwrapped).__name__
        limit = getattr(spec, "max_episode_steps", None)
        self._horizon = HORIZON if limit is None else int(limit)
        several = hasattr(environment, "num_envs")
        observations, actions = (
            getattr(environment, f"single_{kind}" if several else kind)
            for kind in ("observation_space", "action_space")
        )
        self._observations = count_observations(self._name, observations)
        self._space = read_actions(self._name, actions, squash)
        check_seeding(self._name, environment, actions)

    @property
    def name(self) -> str:
        """What it is called, as gymnasium calls it."""
        return self._name

    @property
    def observations(self) -> int:
        """Numbers in an observation."""
        return self._observations

    @property
    def space(self) -> Space:
        """Of the actions."""
        return self._space

    @property
    def horizon(self) -> int:
        """Steps of an episode, at most."""
        return self._horizon

    def play(self, policies: Stack, seeds: Sequence[int], statistics: bool = False) -> Episodes:
        """One episode for every policy and seed.

        A reward, observation or action that is not a number ends an episode; its return is not
        finite then, and the first such is told by a warning.

        Args:
            policies: N of them.
            seeds: M of them; each fixes the start and all chance of an episode.
            statistics: Whether to sum up observations.

        Raises:
            ConfigError: The policies are not for this environment, or a seed is none.
            ObjectiveError: The environment raised an error, or a worker died.
        """
        check_play(self, policies, seeds)
        pairs = [(policy, int(seed)) for policy in range(len(policies)) for seed in seeds]
        outcomes = self._open().play(policies, pairs, statistics) if pairs else []
        trouble = next((one.trouble for one in outcomes if one.trouble), None)
        if trouble and not self._has_warned:
            self._has_warned = True
            warn(HardstepWarning, f"{self.name}: {trouble}; such returns are not finite")
        return _collect(outcomes, (len(policies), len(seeds)), self._observations, statistics)

    def _open(self) -> Player | Crew:
        if self._parcel is None:
            self._player = self._player or Player(self._source, self._name, self._horizon)
            return self._player
        if self._crew is None or not self._crew.pids:  # none yet, or they have ended
            self._crew = Crew(self._parcel, self._processes)
        return self._crew

    def close(self) -> None:
        """End its workers; another call of `play` starts new ones."""
        if self._crew is not None:
            self._crew.close()
        if self._player is not None:
            self._player.close()
        self._crew = self._player = None


def check_play(environment: Any, policies: Stack, seeds: Sequence[int]) -> None:
    """Refuse policies that are not for the environment, and seeds that are none."""
    size = len(policies.mean)
    if size != environment.observations or policies.space != environment.space:
        raise ConfigError(
            f"{environment.name} has {environment.observations} observations and takes "
            f"{environment.space}, the policies take {size} and give {policies.space}; make them "
            "with the observations and the space of the environment"
        )
    for seed in seeds:
        if not is_count(seed):
            raise ConfigError(
                f"{environment.name}: a seed must be a whole number >= 0, got {show(seed)}"
            )


def _find(source: Any) -> Any:
    """The specification of an ID; a factory as it is."""
    try:
        with silence():
            import gymnasium
    except ImportError:
        raise ConfigError(f"Gym needs the package gymnasium: {EXTRA}") from None
    if not isinstance(source, str):
        if not callable(source) or isinstance(source, gymnasium.Env):
            raise ConfigError(
                "Gym: source must be an ID such as 'CartPole-v1' or a function that makes an "
                f"environment, got {show(source)}"
            )
        return source
    module, _, name = source.rpartition(":")
    if module:
        _import(module, source)
    if name not in gymnasium.registry:
        hint = suggest(name, gymnasium.registry, "gymnasium.pprint_registry() lists all")
        raise ConfigError(f"Gym: gymnasium knows no environment {name!r}; {hint}")
    return gymnasium.registry[name]


def _import(module: str, source: str) -> None:
    try:
        with silence():
            import_module(module)
    except Exception as error:
        raise ConfigError(
            f"Gym: the module of {source!r} cannot be imported ({quote(error)}); install it, or "
            "give the ID alone"
        ) from error


def _make(source: Any) -> Any:
    """The environment; what goes wrong is told in one sentence."""
    import gymnasium

    what = show(source) if callable(source) else source.id
    try:
        environment = make(source)
    except HardstepError:
        raise
    except (ImportError, gymnasium.error.DependencyNotInstalled) as error:
        raise ConfigError(
            f"Gym: {what} needs a package that is missing ({quote(error)}); {EXTRA}, or install "
            "what the message names"
        ) from error
    except Exception as error:
        raise ConfigError(
            f"Gym: {what} cannot be made ({quote(error)}); correct it, or choose another"
        ) from error
    if not isinstance(environment, gymnasium.Env | gymnasium.vector.VectorEnv):
        raise ConfigError(
            f"Gym: {what} must return a gymnasium.Env or VectorEnv, got {show(environment)}"
        )
    return environment


def _collect(
    outcomes: Sequence[Outcome], shape: tuple[int, int], observations: int, statistics: bool
) -> Episodes:
    sums = squares = None
    if statistics:
        whole = (*shape, observations)
        sums = np.array([one.sums for one in outcomes], dtype=np.float64).reshape(whole)
        squares = np.array([one.squares for one in outcomes], dtype=np.float64).reshape(whole)
    return Episodes(
        np.array([one.total for one in outcomes], dtype=np.float64).reshape(shape),
        np.array([one.length for one in outcomes], dtype=np.int64).reshape(shape),
        np.array([one.terminated for one in outcomes], dtype=np.bool_).reshape(shape),
        sums,
        squares,
    )
