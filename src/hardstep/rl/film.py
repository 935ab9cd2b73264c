"""A film of a policy: one episode in gymnasium, drawn without a display.

Where an environment cannot be drawn (MuJoCo needs OpenGL, which few servers have), the film is of
numbers: the angles of the joints, or the observations.
"""

import os
import subprocess
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from hardstep._checks import check_count, show
from hardstep._files import explain_failed_write, write_atomically
from hardstep.errors import ConfigError
from hardstep.rl.policies import Policy
from hardstep.rl.spaces import Array

MOST_FRAMES = 128  # and the last
MOST_VALUES = 1024  # where there are no frames
COLORS = 64  # of a GIF's frame
PAUSE = 1.0  # seconds for which the last frame of a GIF stays
SLOWEST, FASTEST = 0.5, 0.02  # seconds per frame; browsers slow down what is faster
USUAL_RATE = 30  # frames a second of an environment that does not say
HINGE = 3  # MuJoCo's number for a joint that turns
WITHOUT_DISPLAY = {
    "SDL_VIDEODRIVER": "dummy",
    "SDL_AUDIODRIVER": "dummy",
    "PYGAME_HIDE_SUPPORT_PROMPT": "1",
}
# Without OpenGL, MuJoCo raises an exception the first time and ends the process the second time.
TRY_MUJOCO = """
import mujoco
from gymnasium.envs.mujoco.mujoco_rendering import MujocoRenderer
model = mujoco.MjModel.from_xml_string("<mujoco/>")
data = mujoco.MjData(model)
mujoco.mj_forward(model, data)
assert MujocoRenderer(model, data, width=64, height=64).render("rgb_array").shape == (64, 64, 3)
"""


@dataclass(frozen=True)
class Film:
    """Moments of one episode, evenly spaced; the last of the episode is the last of the film."""

    environment: str
    seed: int
    frames: Array | None  # (T, h, w, 3) uint8; None where nothing can be drawn
    values: Array  # (T, A) angles of joints in radians if there are any, else observations
    names: tuple[str, ...]  # of the values
    are_angles: bool
    steps: Array  # (T,) interactions before each moment
    interval: float  # seconds of the environment between two moments
    total: float  # return of the episode


def record(
    environment_id: str, policy: Policy, seed: int, size: tuple[int, int] = (240, 160)
) -> Film:
    """Play one episode and film it; nothing is shown, printed or written.

    Args:
        environment_id: As gymnasium knows it.
        policy: Fits the environment.
        seed: Of the episode.
        size: Width and height that a frame may have.

    Raises:
        ConfigError: gymnasium is missing or cannot make the environment, or the policy is for
            another one.
    """
    for side in size:
        check_count("record: size", side)
    with _without_display(), _without_words():
        environment = _make(environment_id)
        try:
            with _without_log():
                return _play(environment_id, environment, policy, seed, size)
        finally:
            environment.close()


def write_gif(path: Path | str, film: Film) -> None:
    """Write the frames as an animation at the speed of the environment, whole or not at all.

    Raises:
        ConfigError: The film has no frames.
        DataError: The file cannot be written.
    """
    from PIL import Image  # matplotlib brings it

    if film.frames is None:
        raise ConfigError(f"{film.environment} cannot be drawn here, so there is no GIF of it")
    pictures = [
        Image.fromarray(frame).quantize(COLORS, dither=Image.Dither.NONE) for frame in film.frames
    ]
    shown = min(max(film.interval, FASTEST), SLOWEST)
    durations = [round(1000 * shown)] * (len(pictures) - 1) + [round(1000 * PAUSE)]
    place = Path(path)
    with explain_failed_write(place), write_atomically(place) as temporary:
        pictures[0].save(
            temporary,
            format="GIF",
            save_all=True,
            append_images=pictures[1:],
            duration=durations,
            loop=0,
            optimize=True,
        )


def _make(environment_id: str) -> Any:
    """The environment, ready to be drawn if it can be."""
    try:
        import gymnasium
    except ImportError as error:
        raise ConfigError("a film needs gymnasium: pip install 'hardstep[rl]'") from error
    try:
        try:
            return gymnasium.make(environment_id, render_mode="rgb_array")
        except Exception:  # some have no such mode, or need for it what is not installed
            return gymnasium.make(environment_id)
    except Exception as error:
        raise ConfigError(f"gymnasium cannot make {show(environment_id)}: {error}") from error


def _play(
    environment_id: str, environment: Any, policy: Policy, seed: int, size: tuple[int, int]
) -> Film:
    observation, _ = environment.reset(seed=seed)
    if np.size(observation) != policy.observations:
        raise ConfigError(
            f"record: the policy takes {policy.observations} observations, {environment_id} has "
            f"{np.size(observation)}"
        )
    first = np.asarray(getattr(environment.action_space, "start", 0))  # of actions that are counted
    draws = _can_draw(environment)
    names, joints = _find_joints(environment)
    moments: list[tuple[int, Array, Array | None]] = []
    step, every, total, over = 0, 1, 0.0, False
    while True:
        if over or step % every == 0:
            picture = _draw(environment, size) if draws else None
            draws = picture is not None
            seen = environment.unwrapped.data.qpos[joints] if names else np.ravel(observation)
            moments.append((step, np.array(seen, dtype=np.float64), picture))
        if over:
            break
        if len(moments) >= (MOST_FRAMES if draws else MOST_VALUES):
            moments, every = moments[::2], 2 * every
        action = policy.act(np.reshape(observation, (1, -1)))[0]
        action = action if np.issubdtype(action.dtype, np.floating) else action + first
        observation, reward, terminated, truncated, _ = environment.step(action)
        step, total, over = step + 1, total + float(reward), bool(terminated or truncated)
    steps, values, pictures = zip(*moments, strict=True)
    rate = float(environment.metadata.get("render_fps") or USUAL_RATE)
    return Film(
        environment=environment_id,
        seed=seed,
        frames=np.stack(pictures) if draws else None,
        values=np.stack(values),
        names=names or tuple(f"observation {number}" for number in range(len(values[0]))),
        are_angles=bool(names),
        steps=np.array(steps),
        interval=every / rate,
        total=total,
    )


def _can_draw(environment: Any) -> bool:
    if environment.render_mode != "rgb_array":
        return False
    return not hasattr(environment.unwrapped, "mujoco_renderer") or can_draw_mujoco()


@cache
def can_draw_mujoco() -> bool:
    """Whether MuJoCo finds what it draws with, tried in a process of its own."""
    with TemporaryDirectory() as folder, suppress(OSError, subprocess.SubprocessError):
        done = subprocess.run(
            [sys.executable, "-c", TRY_MUJOCO],
            cwd=folder,  # it writes a log where it fails
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=60,
        )
        return done.returncode == 0
    return False


def _draw(environment: Any, size: tuple[int, int]) -> Array | None:
    """The environment as it is now, (h, w, 3); None if it cannot be drawn."""
    try:
        picture = np.asarray(environment.render())
    except Exception:  # a missing library, driver or display: each fails in its own way
        return None
    if picture.ndim != 3 or picture.shape[2] != 3 or picture.dtype != np.uint8:
        return None
    return _shrink(picture, size)


def _shrink(picture: Array, size: tuple[int, int]) -> Array:
    from PIL import Image

    small = Image.fromarray(picture)
    small.thumbnail(size, Image.Resampling.LANCZOS)
    return np.asarray(small)


def _find_joints(environment: Any) -> tuple[tuple[str, ...], list[int]]:
    """The names of the joints that turn, and where their angles are; none without MuJoCo."""
    model = getattr(environment.unwrapped, "model", None)
    if model is None or not hasattr(model, "jnt_qposadr"):
        return (), []
    hinges = [number for number, kind in enumerate(model.jnt_type) if kind == HINGE]
    names = tuple(model.joint(number).name or f"joint {number}" for number in hinges)
    return names, [int(model.jnt_qposadr[number]) for number in hinges]


@contextmanager
def _without_display() -> Iterator[None]:
    """Let pygame draw into memory, and say nothing of itself."""
    before = {name: os.environ.get(name) for name in WITHOUT_DISPLAY}
    os.environ.update(WITHOUT_DISPLAY)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


@contextmanager
def _without_words() -> Iterator[None]:
    """Keep warnings of gymnasium and its drawing libraries from the user."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@contextmanager
def _without_log() -> Iterator[None]:
    """Keep MuJoCo from printing warnings, and from logging them into the working folder."""
    mujoco = sys.modules.get("mujoco")
    if mujoco is None:
        yield
        return
    before = mujoco.get_mju_user_warning()
    mujoco.set_mju_user_warning(lambda text: None)
    try:
        yield
    finally:
        mujoco.set_mju_user_warning(before)
