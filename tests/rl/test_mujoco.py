"""MuJoCo in a batch, against gymnasium's own environments."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from hardstep.errors import ConfigError, HardstepWarning
from hardstep.rl.policies import Policy
from hardstep.rl.stacks import Stack

gymnasium = pytest.importorskip("gymnasium")
pytest.importorskip("mujoco.batch")

from hardstep.rl import mujoco as module  # noqa: E402
from hardstep.rl.gym import Gym  # noqa: E402
from hardstep.rl.mujoco import TASKS, MuJoCo, open_mujoco  # noqa: E402


def make_stack(environment: Any, num: int = 3) -> Stack:
    generator = torch.Generator().manual_seed(0)
    policy = Policy(environment.observations, environment.space, hidden=4)
    parts = policy.named_parameters()
    return policy.stack(
        {name: torch.randn(num, *v.shape, generator=generator) for name, v in parts}
    )


def take(stack: Stack, policy: int) -> Stack:
    layers = tuple((weights[[policy]], bias[[policy]]) for weights, bias in stack.layers)
    return Stack(layers, stack.activation, stack.mean, stack.scale, stack.space)


@pytest.fixture(autouse=True)
def in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """MuJoCo would write its log into the working folder; nothing may be there."""
    monkeypatch.chdir(tmp_path)
    yield
    assert list(tmp_path.iterdir()) == []


def shorten(monkeypatch: pytest.MonkeyPatch, steps: int) -> None:
    """Episodes of so many steps."""
    monkeypatch.setattr(MuJoCo, "horizon", property(lambda self: steps))


@pytest.mark.parametrize("name", TASKS)
def test_episodes_are_those_of_gymnasium(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    batch, single = MuJoCo(name, threads=1), Gym(name, processes=0)
    assert (batch.space, batch.observations) == (single.space, single.observations)
    assert batch.horizon == single.horizon == 1000
    shorten(monkeypatch, 60)
    single._horizon = 60
    stack = make_stack(batch)
    for one, other in zip(
        batch.play(stack, [0, 7], True), single.play(stack, [0, 7], True), strict=True
    ):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("name", ["Swimmer-v5", "Hopper-v5"])
def test_threads_company_and_slots_change_no_bit(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    shorten(monkeypatch, 40)
    one, two = MuJoCo(name, threads=1), MuJoCo(name, threads=2)
    stack = make_stack(one, num=7)
    together = one.play(stack, [0, 1, 2], True)
    monkeypatch.setattr(module, "SLOTS", 4)  # episodes take turns
    for other in (two.play(stack, [0, 1, 2], True), MuJoCo(name, 1).play(stack, [0, 1, 2], True)):
        for left, right in zip(together, other, strict=True):
            np.testing.assert_array_equal(left, right)
    alone = one.play(take(stack, 5), [2], True)
    for left, right in zip(together, alone, strict=True):
        np.testing.assert_array_equal(left[5, 2], right[0, 0])


def test_a_record_holds_the_positions_of_an_episode() -> None:
    environment = MuJoCo("Hopper-v5", threads=1)
    stack = make_stack(environment)
    film = environment.record(stack, seed=3, policy=1)
    body = gymnasium.make("Hopper-v5")
    observation, _ = body.reset(seed=3)
    expected, over = [body.unwrapped.data.qpos.copy()], False
    while not over:
        action = stack.act(np.array([1]), observation[None])[0]
        observation, _, over, *_ = body.step(action)
        expected.append(body.unwrapped.data.qpos.copy())
    np.testing.assert_array_equal(film, expected)
    assert environment.joints == ["rooty", "thigh_joint", "leg_joint", "foot_joint"]
    np.testing.assert_array_equal(environment.joint_angles(stack, 3, 1), film[:, 2:])


def test_a_policy_without_numbers_has_no_return() -> None:
    environment, single = MuJoCo("Hopper-v5", threads=2), Gym("Hopper-v5", processes=0)
    stack = make_stack(environment)
    stack.layers[0][0][1] = np.nan
    with pytest.warns(HardstepWarning, match="Hopper-v5: .* at step 0 of the episode with seed 4"):
        played = environment.play(stack, [4])
    with pytest.warns(HardstepWarning, match="the policy's action is nan at step 0 of the episode"):
        plain = single.play(stack, [4])
    for one, other in zip(played[:3], plain[:3], strict=True):
        np.testing.assert_array_equal(one, other)
    assert np.isnan(played.returns[1, 0])


def test_gym_is_the_way_out_where_there_is_no_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    assert isinstance(open_mujoco("Swimmer-v5"), MuJoCo)
    assert isinstance(open_mujoco("Reacher-v5", threads=1), Gym)
    monkeypatch.setattr(module, "has_batch", lambda: False)
    assert isinstance(open_mujoco("Swimmer-v5"), Gym)
    with pytest.raises(ConfigError, match=r"needs mujoco.batch.*or use Gym\('Swimmer-v5'\)"):
        MuJoCo("Swimmer-v5")


def test_an_unknown_task_is_refused_with_the_nearest() -> None:
    with pytest.raises(ConfigError, match="did you mean 'Swimmer-v5'"):
        MuJoCo("Swimmer-v4")
