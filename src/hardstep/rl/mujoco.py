"""MuJoCo's walkers and swimmers, all candidates and episodes in one batch.

    MuJoCo("Swimmer-v5")        through `mujoco.batch`, with the bits of gymnasium's environment
    open_mujoco("Swimmer-v5")   the same; `Gym` where `mujoco.batch` is missing

Model, step lengths and the state after `reset(seed=…)` are taken from gymnasium's environment. The
batch steps; `TASKS` holds what gymnasium computes from it, in gymnasium/envs/mujoco/*_v5.py:

    reward       weight · (x' − x)/dt + alive − cost · Σ action²
    observation  positions without the first few, and velocities, clipped or not

A simulation that has finished makes room for the next episode.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hardstep._checks import check_count, suggest
from hardstep.errors import ConfigError, HardstepWarning, warn
from hardstep.rl.environments import Environment, Episodes
from hardstep.rl.gym import EXTRA, Gym, check_play
from hardstep.rl.gym_play import make, quote, silence
from hardstep.rl.spaces import Array, Continuous, Space
from hardstep.rl.stacks import Stack

SLOTS = 256  # simulations side by side
INFINITE = math.inf


@dataclass(frozen=True)
class Task:
    """How gymnasium sees and rewards a body."""

    forward: float = 1.0  # weight of the velocity along x
    cost: float = 0.0  # weight of the squared actions
    alive: float = 0.0  # reward of a step that ends in health
    hidden: int = 1  # positions that are not observed: x, for a swimmer y, too
    fastest: float = INFINITE  # velocity that is observed, at most
    height: tuple[float, float] | None = None  # health: of position 1
    angle: tuple[float, float] | None = None  # health: of position 2
    state: float = INFINITE  # health: size of all other positions and velocities, at most
    balances: bool = False  # a pole: 1 for a step that ends with it upright

    def observe(self, positions: Array, velocities: Array) -> Array:
        """The observations (B, O)."""
        if self.fastest < INFINITE:
            velocities = np.clip(velocities, -self.fastest, self.fastest)
        return np.concatenate([positions[:, self.hidden :], velocities], axis=1)

    def is_healthy(self, positions: Array, velocities: Array) -> Array:
        """Whether the body is upright, (B,); what needs not be is always healthy."""
        if self.balances:
            finite = np.isfinite(positions).all(axis=1) & np.isfinite(velocities).all(axis=1)
            return np.asarray(finite & ~(np.abs(positions[:, 1]) > 0.2))
        healthy = np.ones(len(positions), dtype=np.bool_)
        for place, limits in ((1, self.height), (2, self.angle)):
            if limits is not None:
                value = positions[:, place]
                healthy &= (limits[0] < value) & (value < limits[1])
        if self.state < INFINITE:
            for part in (positions[:, 2:], velocities):
                healthy &= ((-self.state < part) & (part < self.state)).all(axis=1)
        return healthy

    def reward(self, speed: Array, actions: Array, healthy: Array) -> Array:
        """The rewards (B,), with the roundings of gymnasium: the cost is in float32."""
        if self.balances:
            return healthy.astype(np.float64)
        gain = self.forward * speed
        if self.height is not None:
            gain = gain + healthy * self.alive
        return np.asarray(gain - self.cost * np.sum(np.square(actions), axis=1))


TASKS = {
    "Swimmer-v5": Task(cost=1e-4, hidden=2),
    "Hopper-v5": Task(
        cost=1e-3,
        alive=1.0,
        fastest=10.0,
        height=(0.7, INFINITE),
        angle=(-0.2, 0.2),
        state=100.0,
    ),
    "HalfCheetah-v5": Task(cost=0.1),
    "Walker2d-v5": Task(cost=1e-3, alive=1.0, fastest=10.0, height=(0.8, 2.0), angle=(-1.0, 1.0)),
    "InvertedPendulum-v5": Task(hidden=0, balances=True),
}


def has_batch() -> bool:
    """Whether MuJoCo can step many simulations together."""
    try:
        import mujoco.batch  # noqa: F401
    except ImportError:
        return False
    return True


def open_mujoco(name: str, threads: int = 2, squash: bool = False) -> Environment:
    """The environment as a batch, or through gymnasium where `mujoco.batch` is missing."""
    if name in TASKS and has_batch():
        return MuJoCo(name, threads, squash)
    return Gym(name, processes=threads, squash=squash)


class MuJoCo:
    """One of gymnasium's MuJoCo environments; an episode has the bits it has there.

    Args:
        name: Its ID, of `TASKS`.
        threads: That step simulations; they change no bit.
        squash: Whether numbers are squashed between the bounds of actions, rather than clipped.

    Raises:
        ConfigError: There is no such task, or a package is missing.
    """

    def __init__(self, name: str, threads: int = 2, squash: bool = False) -> None:
        check_count("MuJoCo: threads", threads)
        if name not in TASKS:
            hint = suggest(name, TASKS, f"it plays {', '.join(TASKS)}, Gym plays any other")
            raise ConfigError(f"MuJoCo: no task is called {name!r}; {hint}")
        self._name, self._task, self._threads = name, TASKS[name], threads
        self._gym = _make(name)
        body = self._gym.unwrapped
        self._model, self._frames, self._dt = body.model, body.frame_skip, body.dt
        low, high = body.action_space.low.tolist(), body.action_space.high.tolist()
        self._space = Continuous(tuple(low), tuple(high), squash)
        self._batch: Any = None
        self._has_warned = False

    @property
    def name(self) -> str:
        """What it is called, as gymnasium calls it."""
        return self._name

    @property
    def observations(self) -> int:
        """Numbers in an observation."""
        return int(self._model.nq + self._model.nv) - self._task.hidden

    @property
    def space(self) -> Space:
        """Of the actions."""
        return self._space

    @property
    def horizon(self) -> int:
        """Steps of an episode, at most."""
        return int(self._gym.spec.max_episode_steps)

    @property
    def joints(self) -> list[str]:
        """Names of the hinges whose angles `joint_angles` returns."""
        return [self._model.joint(int(number)).name for number in self._hinges()]

    def play(self, policies: Stack, seeds: Sequence[int], statistics: bool = False) -> Episodes:
        """One episode for every policy and seed.

        A reward, observation or action that is not a number ends an episode; its return is not
        finite then, and the first such is told by a warning.

        Args:
            policies: N of them.
            seeds: M of them; each fixes the start of an episode.
            statistics: Whether to sum up observations.
        """
        check_play(self, policies, seeds)
        starts = np.array([self._find_start(int(seed)) for seed in seeds])
        with silence():
            rollout = _Rollout(self, self._open(), policies, starts)
            if len(rollout.returns):
                rollout.run(statistics)
        if rollout.trouble is not None and not self._has_warned:
            self._has_warned = True
            place, length = rollout.trouble
            warn(
                HardstepWarning,
                f"{self.name}: a reward, observation or action is not a number at step {length} "
                f"of the episode with seed {seeds[place % len(seeds)]}; such returns are not "
                "finite",
            )
        return rollout.collect((len(policies), len(seeds)), statistics)

    def record(self, policies: Stack, seed: int, policy: int = 0) -> Array:
        """The positions (T + 1, nq) of an episode of one policy, the first at the reset."""
        alone = Stack(
            tuple((weights[[policy]], bias[[policy]]) for weights, bias in policies.layers),
            policies.activation,
            policies.mean,
            policies.scale,
            policies.space,
        )
        check_play(self, alone, [seed])
        with silence():
            rollout = _Rollout(self, self._open(), alone, self._find_start(seed)[None])
            return np.array(rollout.run(statistics=False, film=True))

    def joint_angles(self, policies: Stack, seed: int, policy: int = 0) -> Array:
        """The angles (T + 1, joints) of the body's hinges, in radians."""
        places = self._model.jnt_qposadr[self._hinges()]
        return np.asarray(self.record(policies, seed, policy)[:, places])

    def close(self) -> None:
        """End its threads."""
        self._batch = None

    def _hinges(self) -> Array:
        import mujoco

        return np.flatnonzero(self._model.jnt_type == int(mujoco.mjtJoint.mjJNT_HINGE))

    def _open(self) -> Any:
        import mujoco.batch

        if self._batch is None:
            self._batch = mujoco.batch.Batch(self._model, SLOTS, nthread=self._threads)
        return self._batch

    def _find_start(self, seed: int) -> Array:
        """The whole state after gymnasium's reset."""
        import mujoco

        with silence():
            self._gym.reset(seed=seed)
        kind = mujoco.mjtState.mjSTATE_INTEGRATION
        state = np.empty(mujoco.mj_stateSize(self._model, kind))
        mujoco.mj_getState(self._model, self._gym.unwrapped.data, state, kind)
        return state


class _Rollout:
    """Episodes under way: which simulation plays which, and what came of those that are over."""

    def __init__(self, environment: MuJoCo, batch: Any, policies: Stack, starts: Array) -> None:
        self.task, self.horizon = environment._task, environment.horizon
        self.frames, self.dt = environment._frames, environment._dt
        self.batch, self.policies, self.starts = batch, policies, starts
        self.positions, self.velocities = batch.bind("qpos"), batch.bind("qvel")
        self.controls = batch.bind("ctrl")
        num = len(policies) * len(starts)
        self.returns, self.lengths = np.zeros(num), np.zeros(num, dtype=np.int64)
        self.terminated = np.zeros(num, dtype=np.bool_)
        self.sums = np.zeros((num, environment.observations))
        self.squares = np.zeros_like(self.sums)
        self.trouble: tuple[int, int] | None = None  # the first episode with no number, its length

    def run(self, statistics: bool, film: bool = False) -> list[Array]:
        """Play all episodes; with `film`, the positions of the first simulation, step by step."""
        num = len(self.returns)
        slots = np.arange(min(SLOTS, num))
        episodes = slots.copy()  # which one each simulation plays
        following = len(slots)
        self._load(slots, episodes)
        frames = [self.positions[0].copy()] if film else []
        while len(slots):
            over = self._step(slots, episodes, statistics)
            if film:
                frames.append(self.positions[0].copy())
            if over.any():
                fresh = np.arange(following, min(following + int(over.sum()), num))
                following += len(fresh)
                places = np.flatnonzero(over)[: len(fresh)]
                episodes[places] = fresh
                self._load(slots[places], fresh)
                over[places] = False
                slots, episodes = slots[~over], episodes[~over]
        return frames

    def _load(self, slots: Array, episodes: Array) -> None:
        self.batch.state[slots] = self.starts[episodes % len(self.starts)]

    def _step(self, slots: Array, episodes: Array, statistics: bool) -> Array:
        """A step of every simulation; which episodes are over."""
        before = self.positions[slots]
        observations = self.task.observe(before, self.velocities[slots])
        actions = self.policies.act(episodes // len(self.starts), observations)
        if statistics:
            self.sums[episodes] += observations
            self.squares[episodes] += observations**2
        self.controls[slots] = actions
        self.batch.step(slots.astype(np.int32), nstep=self.frames)
        after, velocities = self.positions[slots], self.velocities[slots]
        healthy = self.task.is_healthy(after, velocities)
        speed = (after[:, 0] - before[:, 0]) / self.dt
        self.returns[episodes] += self.task.reward(speed, actions, healthy)
        self.lengths[episodes] += 1
        lost = ~np.isfinite(self.returns[episodes])
        # A policy that acts with no number has no return, whatever the simulator makes of it.
        astray: Array = np.asarray(np.isnan(actions).any(axis=1))
        if (lost | astray).any():
            self._note(episodes, lost, astray)
        self.terminated[episodes] = ~healthy & ~astray
        return lost | astray | ~healthy | (self.lengths[episodes] >= self.horizon)

    def _note(self, episodes: Array, lost: Array, astray: Array) -> None:
        self.returns[episodes[astray]] = np.nan
        self.lengths[episodes[astray]] -= 1  # such a step is none
        first = int(episodes[lost | astray].min())
        if self.trouble is None or first < self.trouble[0]:
            self.trouble = first, int(self.lengths[first])

    def collect(self, shape: tuple[int, int], statistics: bool) -> Episodes:
        """What came of the episodes."""
        wide = (*shape, self.sums.shape[1])
        return Episodes(
            self.returns.reshape(shape),
            self.lengths.reshape(shape),
            self.terminated.reshape(shape),
            self.sums.reshape(wide) if statistics else None,
            self.squares.reshape(wide) if statistics else None,
        )


def _make(name: str) -> Any:
    """Gymnasium's environment; what is missing is told in one sentence."""
    try:
        import gymnasium
        import mujoco
    except ImportError as error:
        raise ConfigError(
            f"MuJoCo needs a package that is missing ({quote(error)}): {EXTRA}"
        ) from None
    if not has_batch():
        raise ConfigError(
            f"MuJoCo needs mujoco.batch, which mujoco {mujoco.__version__} has not; {EXTRA}, "
            f"or use Gym({name!r})"
        )
    return make(gymnasium.registry[name])
