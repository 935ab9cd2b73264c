import os
import subprocess
import sys

import numpy as np
import pytest
import torch

from hardstep.errors import ConfigError, DataError
from hardstep.rl import film
from hardstep.rl.policies import Policy
from hardstep.rl.spaces import Continuous, Discrete, MultiDiscrete

gymnasium = pytest.importorskip("gymnasium")
Image = pytest.importorskip("PIL.Image")
QUIET = """
import os, sys
from hardstep.rl import film
from hardstep.rl.policies import Policy
from hardstep.rl.spaces import Discrete
assert film.record("CartPole-v1", Policy(4, Discrete(2)), 0).frames is not None
assert not any(name in os.environ for name in film.WITHOUT_DISPLAY)
"""


def balance():
    """A linear policy that keeps CartPole's pole up for a whole episode."""
    policy = Policy(4, Discrete(2), hidden=0)
    with torch.no_grad():
        policy.layers[0].weight.copy_(torch.tensor([[0.0, 0, 0, 0], [0.1, 0.5, 5, 2]]))
        policy.layers[0].bias.zero_()
    return policy


@pytest.fixture(scope="module")
def long():
    pytest.importorskip("pygame")
    return film.record("CartPole-v1", balance(), 0, size=(90, 60))


def test_a_film_is_of_the_episode_that_the_seed_fixes(long):
    environment, policy = gymnasium.make("CartPole-v1"), balance()
    observation, _ = environment.reset(seed=0)
    seen, over = [observation], False
    while not over:
        observation, _, terminated, truncated, _ = environment.step(
            int(policy.act(observation[None])[0])
        )
        seen.append(observation)
        over = terminated or truncated
    environment.close()
    assert long.total == 500
    assert np.array_equal(long.values, np.array(seen)[long.steps])
    assert not long.are_angles


def test_frames_are_few_small_and_evenly_spaced(long):
    assert long.frames.dtype == np.uint8
    assert long.frames.shape == (126, 60, 90, 3)
    assert np.array_equal(long.steps, np.arange(0, 501, 4))
    assert long.interval == pytest.approx(4 / 50)
    assert len({frame.tobytes() for frame in long.frames}) > 50


def test_the_last_moment_of_an_episode_is_in_the_film(monkeypatch):
    monkeypatch.setattr(film, "MOST_FRAMES", 8)
    for seed in range(3):
        torch.manual_seed(seed)
        shot = film.record("CartPole-v1", Policy(4, Discrete(2)), seed, size=(30, 20))
        assert shot.steps[-1] == shot.total  # a reward of one per step
        assert len(shot.steps) <= 9
        assert len(set(np.diff(shot.steps)[:-1])) == 1


def test_a_square_picture_keeps_its_shape():
    assert film._shrink(np.zeros((500, 500, 3), dtype=np.uint8), (60, 40)).shape == (40, 40, 3)


def test_nothing_is_printed_written_or_left_behind(tmp_path):
    pytest.importorskip("pygame")
    hidden = ("DISPLAY", *film.WITHOUT_DISPLAY)
    clean = {name: value for name, value in os.environ.items() if name not in hidden}
    done = subprocess.run(
        [sys.executable, "-B", "-W", "always", "-c", QUIET],
        cwd=tmp_path,
        env={**clean, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert not list(tmp_path.iterdir())


def test_what_the_user_has_set_comes_back(monkeypatch):
    monkeypatch.setenv("SDL_VIDEODRIVER", "x11")
    monkeypatch.delenv("PYGAME_HIDE_SUPPORT_PROMPT", raising=False)
    with pytest.raises(ConfigError):
        film.record("Nowhere-v1", balance(), 0)
    assert os.environ["SDL_VIDEODRIVER"] == "x11"
    assert "PYGAME_HIDE_SUPPORT_PROMPT" not in os.environ


def test_an_environment_that_cannot_be_drawn_leaves_its_observations(monkeypatch):
    def fail(self):
        raise RuntimeError("no OpenGL")

    monkeypatch.setattr(gymnasium.envs.classic_control.CartPoleEnv, "render", fail)
    shot = film.record("CartPole-v1", balance(), 0)
    assert shot.frames is None
    assert shot.values.shape == (501, 4)
    assert shot.names[0] == "observation 0"
    with pytest.raises(ConfigError, match="CartPole-v1 cannot be drawn here"):
        film.write_gif("film.gif", shot)


SWIMMER = Continuous((-1.0, -1.0), (1.0, 1.0))


def test_without_opengl_the_angles_of_joints_are_kept(monkeypatch, tmp_path):
    pytest.importorskip("mujoco")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(film, "can_draw_mujoco", lambda: False)
    shot = film.record("Swimmer-v5", Policy(8, SWIMMER), 0)
    assert shot.frames is None
    assert shot.are_angles
    assert shot.names == ("free_body_rot", "motor1_rot", "motor2_rot")
    assert shot.values.shape == (1001, 3)
    assert not list(tmp_path.iterdir())


def test_with_opengl_mujoco_is_drawn(monkeypatch):
    pytest.importorskip("mujoco")
    from gymnasium.envs.mujoco import MujocoEnv

    monkeypatch.setattr(film, "can_draw_mujoco", lambda: True)
    monkeypatch.setattr(MujocoEnv, "render", lambda self: np.full((48, 48, 3), 7, dtype=np.uint8))
    shot = film.record("Swimmer-v5", Policy(8, SWIMMER), 0, size=(24, 24))
    assert shot.frames.shape[1:] == (24, 24, 3)
    assert len(shot.frames) == len(shot.values) <= 129


def test_mujoco_is_tried_in_another_process(monkeypatch):
    film.can_draw_mujoco.cache_clear()
    monkeypatch.setattr(film, "TRY_MUJOCO", "import os; os.abort()")
    assert not film.can_draw_mujoco()
    film.can_draw_mujoco.cache_clear()
    monkeypatch.setattr(film, "TRY_MUJOCO", "")
    assert film.can_draw_mujoco()
    film.can_draw_mujoco.cache_clear()


def test_an_unstable_simulation_logs_nothing(monkeypatch, tmp_path, capfd):
    mujoco = pytest.importorskip("mujoco")
    monkeypatch.chdir(tmp_path)
    model = mujoco.MjModel.from_xml_string(
        "<mujoco><worldbody><body><joint type='hinge'/><geom size='1'/></body></worldbody></mujoco>"
    )
    data = mujoco.MjData(model)
    data.qvel[:] = 1e30
    with film._without_log():
        mujoco.mj_step(model, data)
    assert data.warning.number.sum() > 0
    assert capfd.readouterr() == ("", "")
    assert not list(tmp_path.iterdir())


class Counted(gymnasium.Env):
    """Actions begin with 3; there is no way to draw it."""

    observation_space = gymnasium.spaces.Box(-1, 1, (2,))

    def __init__(self, space):
        self.action_space, self.left = space, 5

    def reset(self, seed=None, options=None):
        return np.zeros(2, dtype=np.float32), {}

    def step(self, action):
        assert self.action_space.contains(action), action
        self.left -= 1
        return np.zeros(2, dtype=np.float32), 1.0, self.left == 0, False, {}


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        (gymnasium.spaces.Discrete(2, start=3), Discrete(2)),
        (gymnasium.spaces.MultiDiscrete([2, 3], start=[3, 1]), MultiDiscrete((2, 3))),
    ],
    ids=["discrete", "several"],
)
def test_actions_are_counted_as_the_environment_counts(theirs, ours, monkeypatch):
    monkeypatch.setattr(gymnasium.envs.registration, "registry", {})
    gymnasium.register("Counted-v0", entry_point=lambda: Counted(theirs))
    shot = film.record("Counted-v0", Policy(2, ours), 0)
    assert shot.total == 5
    assert shot.frames is None


def test_a_gif_has_the_frames_and_the_speed_of_the_film(long, tmp_path):
    path = tmp_path / "new" / "film.gif"
    film.write_gif(path, long)
    with Image.open(path) as gif:
        assert gif.size == (90, 60)
        assert gif.n_frames > 50  # those that equal the one before are merged with it
        assert gif.info["duration"] % 80 == 0
        first = np.asarray(gif.convert("RGB")).astype(int)
    assert np.abs(first - long.frames[0]).max() < 64
    assert path.stat().st_size < 1_000_000
    assert [one.name for one in path.parent.iterdir()] == ["film.gif"]


def test_a_gif_of_one_frame_is_a_picture(long, tmp_path):
    from dataclasses import replace

    film.write_gif(tmp_path / "film.gif", replace(long, frames=long.frames[:1]))
    with Image.open(tmp_path / "film.gif") as gif:
        assert gif.n_frames == 1


def test_a_place_that_takes_no_file_is_named(long, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError, match="cannot be written"):
        film.write_gif(tmp_path / "file" / "film.gif", long)


def test_what_does_not_fit_is_refused():
    with pytest.raises(ConfigError, match="gymnasium cannot make 'CartPol-v1'.*CartPole"):
        film.record("CartPol-v1", balance(), 0)
    with pytest.raises(ConfigError, match="takes 3 observations, CartPole-v1 has 4"):
        film.record("CartPole-v1", Policy(3, Discrete(2)), 0)
    with pytest.raises(ConfigError, match="size"):
        film.record("CartPole-v1", balance(), 0, size=(0, 10))


ROWS = [
    {"event": "step", "step": 1, "loss": -10.0, "interactions": 100},
    {"event": "step", "step": 2, "loss": None, "interactions": 200},
    {"event": "validation", "step": 2, "value": 30.0, "interactions": 200},
    {"event": "validation", "step": 3, "value": None, "interactions": 300},
    {"event": "end"},
]
WITHOUT = [{name: value for name, value in row.items() if name != "interactions"} for row in ROWS]


@pytest.mark.parametrize("rows", [WITHOUT, ROWS[2:3], []])
def test_a_picture_is_drawn_of_whatever_the_log_has(rows, tmp_path):
    pytest.importorskip("matplotlib")
    from hardstep.rl import plots

    plots.draw_policy(tmp_path / "a.png", "costs $5 or $6", rows, {"selected_step": 2}, None)
    assert (tmp_path / "a.png").stat().st_size > 0


def test_the_curve_is_over_interactions():
    pytest.importorskip("matplotlib")
    from hardstep.rl import plots

    figure, axes = plots.pyplot.subplots()
    plots._draw_curve(axes, ROWS, {"selected_step": 2})
    candidates, validation, selected = axes.get_lines()
    assert candidates.get_xydata().tolist() == [[100, 10]]
    assert validation.get_xydata().tolist() == [[200, 30]]
    assert selected.get_xdata() == [200, 200]
    assert axes.get_xlabel() == "interactions with the environment"
    plots.pyplot.close(figure)


@pytest.mark.parametrize("drawn", [True, False])
def test_beside_the_curve_are_frames_or_lines(drawn, long, tmp_path):
    pytest.importorskip("matplotlib")
    from dataclasses import replace

    from hardstep.rl import plots

    shot = long if drawn else replace(long, frames=None)
    before = plots.pyplot.get_fignums()
    plots.draw_policy(tmp_path / "a.png", "CartPole", ROWS, {}, shot)
    with Image.open(tmp_path / "a.png") as picture:
        assert picture.size == (1800, 690)
        right = np.asarray(picture.convert("RGB"))[:, 950:]
    assert (right == [202, 152, 101]).all(axis=2).any() == drawn  # the pole
    assert plots.pyplot.get_fignums() == before
