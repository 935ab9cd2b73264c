"""Any gymnasium environment, played in this process or by workers."""

import os
import signal
import subprocess
import sys
import time
from typing import Any

import numpy as np
import pytest
import torch

from hardstep.errors import ConfigError, HardstepWarning, ObjectiveError
from hardstep.rl.policies import Policy
from hardstep.rl.stacks import ACTIVATIONS, Stack

gymnasium = pytest.importorskip("gymnasium")

from hardstep.rl.gym import Gym  # noqa: E402
from tests.rl import small_environments as small  # noqa: E402

SEEDS = [3, 11]


def make_stack(environment: Any, num: int = 3, **options: Any) -> Stack:
    generator = torch.Generator().manual_seed(0)
    policy = Policy(environment.observations, environment.space, hidden=5, **options)
    parts = policy.named_parameters()
    return policy.stack(
        {name: torch.randn(num, *v.shape, generator=generator) for name, v in parts}
    )


def play_plainly(env: Any, stack: Stack, seeds: list[int], first: int = 0) -> list[Any]:
    """Returns, lengths, terminations, sums and squares by a loop as gymnasium teaches it."""
    rows = []
    for policy in range(len(stack)):
        for seed in seeds:
            observation, _ = env.reset(seed=seed)
            total, seen, over, cut = 0.0, [], False, False
            while not over and not cut:
                seen.append(np.asarray(observation, dtype=np.float64))
                action = stack.act(np.array([policy]), seen[-1][None])[0]
                if action.ndim == 0:
                    action = first + int(action)
                elif action.dtype.kind == "i":
                    action = action.astype(env.action_space.dtype)
                observation, reward, over, cut, _ = env.step(action)
                total += float(reward)
            squares = sum(one**2 for one in seen)
            rows.append((total, len(seen), over, sum(seen), squares))
    return [np.array(part) for part in zip(*rows, strict=True)]


def assert_same(episodes: Any, parts: Any) -> None:
    for one, other in zip(episodes, parts, strict=True):
        np.testing.assert_array_equal(one.ravel(), np.asarray(other).ravel())


@pytest.mark.parametrize(
    ("source", "squash"),
    [("CartPole-v1", False), ("Pendulum-v1", False), ("Pendulum-v1", True)],
)
def test_episodes_are_those_of_a_plain_loop(source: str, squash: bool) -> None:
    environment = Gym(source, processes=0, squash=squash)
    stack = make_stack(environment, num=2)
    assert environment.name == source
    assert environment.horizon == gymnasium.spec(source).max_episode_steps
    plain = play_plainly(gymnasium.make(source), stack, SEEDS)
    assert_same(environment.play(stack, SEEDS, statistics=True), plain)


@pytest.mark.parametrize("kind", [small.Walk, small.Binary, small.Late])
def test_actions_of_every_kind_are_in_the_space(kind: Any) -> None:
    environment = Gym(kind, processes=0)
    stack = make_stack(environment)
    first = 1 if kind is small.Late else 0
    played = environment.play(stack, SEEDS, statistics=True)
    assert_same(played, play_plainly(kind(), stack, SEEDS, first))


def test_any_number_of_processes_gives_the_same_bits() -> None:
    played = []
    for processes in (0, 1, 2):
        environment = Gym(small.Walk, processes=processes)
        stack = make_stack(environment, num=5)
        played.append(environment.play(stack, [4, 0, 9], statistics=True))
        environment.close()
    assert_same(played[0], played[1])
    assert_same(played[0], played[2])
    assert {True, False} == set(played[0].terminated.ravel().tolist())


@pytest.mark.parametrize("make", [small.make_vector, small.make_vector_without_resets])
def test_a_vector_environment_plays_the_episodes_of_single_ones(make: Any) -> None:
    several, single = Gym(make, processes=0), Gym(small.Walk, processes=0)
    stack = make_stack(single)
    assert_same(several.play(stack, SEEDS, True), single.play(stack, SEEDS, True))


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_a_policy_acts_alone_as_in_company(activation: str) -> None:
    environment = Gym("Pendulum-v1", processes=0)
    stack = make_stack(environment, num=4, activation=activation)
    seen = np.random.default_rng(0).normal(size=(4, environment.observations))
    together = stack.act(np.arange(4), seen)
    np.testing.assert_array_equal(together, [stack.act_alone(i, row) for i, row in enumerate(seen)])


def test_an_endless_environment_is_cut() -> None:
    environment = Gym(small.Endless, processes=0)
    played = environment.play(make_stack(environment, num=1), [0])
    assert played.lengths.item() == environment.horizon == 10_000
    assert not played.terminated.item()


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("CartPol-v1", "did you mean 'CartPole-v1'?"),
        ("no_such_module:CartPole-v1", "cannot be imported"),
        (7, "source must be an ID such as 'CartPole-v1' or a function"),
        (dict, "must return a gymnasium.Env or VectorEnv, got {}"),
        (small.Pictures, "got images of shape (8, 8, 3); wrap it in"),
        (small.Named, "got a Dict; wrap it in gymnasium.wrappers.FlattenObservation"),
        (small.Odd, "got Tuple(Discrete(2)); translate them"),
        (small.Unseeded, "reset of Unseeded ignores its seed"),
    ],
)
def test_a_bad_source_is_refused_in_a_sentence(source: Any, words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Gym(source, processes=0)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_factory_that_cannot_be_sent_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"cannot be sent .*ickle.*; define it at the top of a"):
        Gym(lambda: small.Walk(), processes=1)


def test_missing_gymnasium_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "gymnasium", None)
    with pytest.raises(ConfigError, match=r"pip install 'hardstep\[rl\]'"):
        Gym("CartPole-v1")


def test_policies_for_another_environment_and_odd_seeds_are_refused() -> None:
    environment = Gym(small.Walk, processes=0)
    with pytest.raises(ConfigError, match="has 4 observations"):
        Gym("CartPole-v1", processes=0).play(make_stack(environment), [0])
    with pytest.raises(ConfigError, match="a seed must be a whole number >= 0, got -1"):
        environment.play(make_stack(environment), [-1])


def test_an_error_names_environment_seed_and_step_and_ends_the_workers() -> None:
    expected = "Gym: Raising raised RuntimeError: the motor is stuck and hot at step 7 of the"
    for processes in (0, 2):
        environment = Gym(small.Raising, processes=processes)
        stack = make_stack(environment)
        with pytest.raises(ObjectiveError, match=expected) as caught:
            environment.play(stack, [5])
        assert "seed 5" in str(caught.value)
    assert environment._crew is not None
    assert environment._crew.pids == []
    assert np.isfinite(environment.play(stack, [6]).returns).all()  # by new workers
    environment.close()


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        (small.NanReward, "a reward is nan at step 1 of the episode with seed 5"),
        (small.NanObservation, "an observation is nan at step 1 of the episode with seed 5"),
    ],
)
def test_nan_is_handed_on_and_told_once(kind: Any, words: str) -> None:
    environment = Gym(kind, processes=0)
    stack = make_stack(environment)
    with pytest.warns(HardstepWarning, match=words):
        played = environment.play(stack, [5, 6])
    assert np.isnan(played.returns[:, 0]).all()
    assert np.isfinite(played.returns[:, 1]).all()
    assert np.isnan(environment.play(stack, [5]).returns).all()  # and no second warning


def test_a_killed_worker_is_told_and_the_others_are_ended() -> None:
    environment = Gym(small.Deadly, processes=2)
    stack = make_stack(environment)
    environment.play(stack, [6])
    assert environment._crew is not None
    pids = environment._crew.pids
    with pytest.raises(ObjectiveError, match="a worker process of Deadly was ended by SIGKILL"):
        environment.play(stack, [6, 5])
    assert not any(is_alive(pid) for pid in pids)


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


SCRIPT = """
import sys
import gymnasium
import numpy as np
from hardstep.rl.gym_workers import Crew, pack
from hardstep.rl.spaces import Discrete
from hardstep.rl.stacks import Stack
layers = ((np.ones((1, 3, 6)), np.ones((1, 3))),)
stack = Stack(layers, "relu", np.zeros(6), np.ones(6), Discrete(3))
crew = Crew(pack(gymnasium.spec("Acrobot-v1"), "Acrobot-v1", 500), 2)
crew.play(stack, [(0, 0), (0, 1)], False)
print(*crew.pids, "torch" in sys.modules, flush=True)
crew.play(stack, [(0, seed) for seed in range(10_000)], False)
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_workers_end_with_the_process_that_started_them(number: int) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", SCRIPT], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as process:
        assert process.stdout is not None
        first, second, has_torch = process.stdout.readline().split()
        process.send_signal(number)
        process.wait(20)
    assert has_torch == b"False"  # what workers import starts quickly
    deadline = time.monotonic() + 20
    while any(is_alive(int(pid)) for pid in (first, second)) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not any(is_alive(int(pid)) for pid in (first, second))
