"""PPO and DQN from stable-baselines3 and ARS from sb3-contrib, at their defaults.

    ppo        proximal policy optimization, MlpPolicy: two networks of 64, 64 tanh units
    ppo-ste    the same with a straight-through estimator; of a quantized network only
    dqn        deep Q-learning, MlpPolicy: 64, 64 ReLU units
    ars        augmented random search, LinearPolicy: one matrix, no bias
    ars-mlp    the same with 16 ReLU units

In float a network is the library's own. Quantized, it is the same network with an operator at
every hidden activation and at the outputs of policy and value (or Q) network, as in the paper:

    int8       round(x / s) s, s = max|x| / 127 over one observation's vector, after the activation
    binary     +1 where x >= 0, else -1, in place of the activation: after ReLU all would be +1

A scale s of its own for each observation makes an action independent of the batch it is computed
in; of a value network's single output INT8 changes nothing but the gradient. Round and sign have
derivative 0 (s counts as a constant), so without an estimator every gradient is exactly 0. The
straight-through estimator passes gradients on unchanged, through sign where |x| <= 1. ARS needs no
gradients. The authors' code has networks of 16 units instead of the library's default.
"""

import copy
import time
import warnings
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from hardstep._checks import check_count, check_name
from hardstep.errors import ConfigError

try:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # on packages that are not needed here
        import gymnasium
        from sb3_contrib import ARS
        from sb3_contrib import __version__ as contrib_version
        from stable_baselines3 import DQN, PPO
        from stable_baselines3 import __version__ as stable_version
        from stable_baselines3.common.base_class import BaseAlgorithm
        from stable_baselines3.common.callbacks import BaseCallback
        from stable_baselines3.common.logger import Logger
except ImportError as error:
    raise ConfigError(
        "PPO, DQN and ARS need stable-baselines3 and sb3-contrib: pip install 'hardstep[rl]'"
    ) from error

METHODS = ("ppo", "ppo-ste", "dqn", "ars", "ars-mlp")
PRECISIONS = ("float", "int8", "binary")
ANCHORS = {"CartPole-v1": (22.0, 500.0), "Acrobot-v1": (-500.0, -80.0)}  # returns scored 0 and 1

TEST_EPISODES = 100
TEST_SEED = 1_000_000  # of the first test episode; training draws its episodes from its own seed
CURVE_POINTS = 50
WINDOW = 100  # training episodes averaged for a point, as in the library's log

FROZEN = 20_000  # interactions that show that a network without gradients keeps its weights
ARS_UNITS = 16
SMALLEST = 1e-30  # largest value that is told from 0


class Quantize(nn.Module):
    """An operator on the last axis, with derivative 0 or with a straight-through estimator."""

    def __init__(self, precision: str, straight_through: bool = False) -> None:
        super().__init__()
        self.is_binary = precision == "binary"
        self.straight_through = straight_through

    def forward(self, x: Tensor) -> Tensor:
        """Rounded values; torch's derivatives of round and sign are 0."""
        rounded = _sign(x) if self.is_binary else _round(x)
        if not self.straight_through:
            return rounded
        passed = x.clamp(-1, 1) if self.is_binary else x
        return rounded.detach() + (passed - passed.detach())


def _sign(x: Tensor) -> Tensor:
    return x.sign() + (x == 0).to(x)


def _round(x: Tensor) -> Tensor:
    largest: Tensor = torch.linalg.vector_norm(x.detach(), torch.inf, dim=-1, keepdim=True)
    scale = largest.clamp_min(SMALLEST) / 127
    return (x / scale).round() * scale


def quantize(model: BaseAlgorithm, precision: str, straight_through: bool = False) -> None:
    """Put operators into a model's networks; its parameters and its optimizer stay."""
    policy: Any = model.policy

    def insert(*layers: nn.Module) -> nn.Sequential:
        return _insert(layers, precision, straight_through)

    if isinstance(model, PPO):
        extractor = policy.mlp_extractor
        extractor.policy_net = insert(*extractor.policy_net)
        extractor.value_net = insert(*extractor.value_net)
        policy.action_net = insert(policy.action_net)
        policy.value_net = insert(policy.value_net)
    elif isinstance(model, DQN):
        for network in (policy.q_net, policy.q_net_target):
            network.q_net = insert(*network.q_net)
    else:
        policy.action_net = insert(*policy.action_net)


def _insert(layers: tuple[nn.Module, ...], precision: str, straight_through: bool) -> nn.Sequential:
    """An operator at every activation, and at the end if a linear layer is last."""
    operator = Quantize(precision, straight_through)
    placed: list[nn.Module] = []
    for layer in layers:
        if isinstance(layer, nn.Linear):
            placed.append(layer)
        else:
            placed += [operator] if operator.is_binary else [layer, operator]
    ends_linear = isinstance(layers[-1], nn.Linear)
    return nn.Sequential(*placed, *([operator] if ends_linear else []))


def build(
    method: str, environment: gymnasium.Env[Any, Any], precision: str, seed: int, **options: Any
) -> BaseAlgorithm:
    """An untrained model; `options` replace the library's defaults. It logs nothing.

    Raises:
        ConfigError: There is no such method or precision, or nothing to estimate in float.
    """
    check_name(method, METHODS, "method")
    check_name(precision, PRECISIONS, "precision")
    if method == "ppo-ste" and precision == "float":
        raise ConfigError("ppo-ste estimates gradients of int8 and binary networks; use ppo")
    given: dict[str, Any] = {"env": environment, "seed": seed, "device": "cpu", **options}
    model: BaseAlgorithm
    if method == "dqn":
        model = DQN("MlpPolicy", **given)
    elif method == "ars":
        model = ARS("LinearPolicy", **given)
    elif method == "ars-mlp":
        model = ARS("MlpPolicy", policy_kwargs={"net_arch": [ARS_UNITS]}, **given)
    else:
        model = PPO("MlpPolicy", **given)
    if precision != "float":
        quantize(model, precision, straight_through=method == "ppo-ste")
    model.set_logger(Logger(folder=None, output_formats=[]))  # its own makes a folder
    return model


class Point(NamedTuple):
    """A point of a learning curve."""

    value: float  # mean return of the last training episodes
    steps: int  # of the optimizer, or generations of ARS
    interactions: int
    seconds: float
    cpu_seconds: float


class Tally(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Counts interactions where they happen, and keeps the returns of the last episodes."""

    def __init__(self, environment: gymnasium.Env[Any, Any], every: int) -> None:
        super().__init__(environment)
        self.interactions = 0
        self.returns: deque[float] = deque(maxlen=WINDOW)
        self.on_point: Callable[[], None] = lambda: None  # called after every so many
        self._every = every
        self._return = 0.0

    def reset(self, **options: Any) -> tuple[Any, dict[str, Any]]:
        """Begin an episode."""
        self._return = 0.0
        return self.env.reset(**options)

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """One interaction."""
        result = self.env.step(action)
        self.interactions += 1
        self._return += float(result[1])
        if result[2] or result[3]:
            self.returns.append(self._return)
        if self.interactions % self._every == 0:
            self.on_point()
        return result

    @property
    def recent(self) -> float | None:
        """The mean return of the last episodes; none before the first has ended."""
        return float(np.mean(self.returns)) if self.returns else None


class Generations(BaseCallback):
    """Counts what ARS evaluates together."""

    count = 0

    def _on_step(self) -> bool:
        return True

    def _on_rollout_end(self) -> None:
        self.count += 1


def train(
    method: str,
    environment_id: str,
    precision: str,
    seed: int,
    interactions: int = 1_000_000,
    on_point: Callable[[Point], None] = lambda point: None,
    **options: Any,
) -> dict[str, Any]:
    """Train, then play 100 episodes that no training saw; the fields of a record.

    The libraries finish what they began: PPO its rollout of 2,048 interactions, ARS its
    generation. `interactions` of the record has them, too. Seconds are of training only.

    A network whose gradients are all exactly 0 is the same after any number of interactions. Its
    run ends after `FROZEN` of them if its weights are still those of the start, bit for bit;
    `stopped` says so.

    Raises:
        ConfigError: Something is unknown, or there is no budget.
    """
    check_name(environment_id, ANCHORS, "environment")
    check_count("train: interactions", interactions, 1)
    tally = Tally(gymnasium.make(environment_id), max(1, interactions // CURVE_POINTS))
    try:
        model = build(method, tally, precision, seed, **options)
        generations = Generations()
        count_steps = _count_steps(model, generations)
        curve: list[Point] = []
        started = time.perf_counter(), time.process_time()

        def spent() -> tuple[float, float]:
            return time.perf_counter() - started[0], time.process_time() - started[1]

        def note() -> None:
            if tally.recent is not None and tally.interactions <= interactions:
                point = Point(tally.recent, count_steps(), tally.interactions, *spent())
                curve.append(point)
                on_point(point)

        tally.on_point = note
        has_gradients = precision == "float" or method not in ("ppo", "dqn")
        start = copy.deepcopy(model.policy.state_dict())
        model.learn(interactions if has_gradients else min(FROZEN, interactions), generations)
        if not has_gradients and not _equal(start, model.policy.state_dict()):
            raise AssertionError(f"{method}, {precision}: weights moved without gradients")
        seconds, cpu_seconds = spent()
    finally:
        tally.close()
    steps = count_steps()
    return {
        "settings": describe(method, precision, options),
        "steps": steps,
        "evaluations": 0,
        "interactions": tally.interactions,
        "seconds": seconds,
        "cpu_seconds": cpu_seconds,
        "selected_step": steps,
        "valid": tally.recent,
        **score(play(model, environment_id), environment_id),
        "curve": {
            **{field: [getattr(point, field) for point in curve] for field in Point._fields},
            "evaluations": [0] * len(curve),
        },
        "stopped": "finished" if has_gradients else "no gradient: all weights as at the start",
    }


def _equal(one: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    return all(torch.equal(value, other[name]) for name, value in one.items())


def _count_steps(model: BaseAlgorithm, generations: Generations) -> Callable[[], int]:
    """What tells how many steps of its optimizer, or generations, a model has made."""
    if isinstance(model, ARS):
        return lambda: generations.count
    made = [0]

    def count(*_: object) -> None:
        made[0] += 1

    optimizer: torch.optim.Optimizer = model.policy.optimizer
    optimizer.register_step_post_hook(count)
    return lambda: made[0]


def play(model: BaseAlgorithm, environment_id: str, episodes: int = TEST_EPISODES) -> list[float]:
    """Returns of the policy without exploration, an episode from each seed of the test."""
    environments = [gymnasium.make(environment_id) for _ in range(episodes)]
    states = [env.reset(seed=TEST_SEED + i)[0] for i, env in enumerate(environments)]
    returns = [0.0] * episodes
    running = list(range(episodes))
    while running:
        actions, _ = model.predict(np.stack([states[i] for i in running]), deterministic=True)
        unfinished = []
        for i, action in zip(running, actions, strict=True):
            states[i], reward, terminated, truncated, _ = environments[i].step(action)
            returns[i] += float(reward)
            if not (terminated or truncated):
                unfinished.append(i)
        running = unfinished
    for environment in environments:
        environment.close()
    return returns


def score(returns: list[float], environment_id: str) -> dict[str, float]:
    """Mean and spread of a test, and the mean between the environment's anchors, in [0, 1]."""
    mean = float(np.mean(returns))
    low, high = ANCHORS[environment_id]
    return {
        "test": mean,
        "test_reads": 1,
        "test_spread": float(np.std(returns, ddof=1)) if len(returns) > 1 else 0.0,
        "normalized": min(1.0, max(0.0, (mean - low) / (high - low))),
    }


def describe(method: str, precision: str, options: dict[str, Any]) -> str:
    """The settings of a run in words."""
    networks = {
        "ppo": "PPO(MlpPolicy), 64, 64 tanh units",
        "ppo-ste": "PPO(MlpPolicy), 64, 64 tanh units",
        "dqn": "DQN(MlpPolicy), 64, 64 ReLU units",
        "ars": "ARS(LinearPolicy), no bias",
        "ars-mlp": f"ARS(MlpPolicy), {ARS_UNITS} ReLU units",
    }
    package = f"sb3-contrib {contrib_version}"
    if not method.startswith("ars"):
        package = f"stable-baselines3 {stable_version}"
    operators = ""
    if precision != "float":
        operators = f"; {precision} operators at activations and outputs"
        if method == "ppo-ste":
            operators += ", straight-through estimator"
    changed = f"; {options}" if options else ""
    return f"{package}: {networks[method]}, defaults{operators}{changed}"
