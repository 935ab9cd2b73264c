"""The one-step maps of gymnasium's classic environments, for all lanes at once.

    state     (S, LANES)  before, then after the step
    action    (LANES,)    an index, or Pendulum's torque
    observed  (O, LANES)  what gymnasium returns: rounded to float32
    reward    (LANES,)
    ended     (LANES,)    1 where the environment terminated, else 0

Operations are gymnasium's, in its order. Only sines and cosines may differ, by an ulp, and the
square of the torque of Pendulum, for which gymnasium calls powf: once in a thousand times its last
bit in float32 is wrong, up to 2.4e-10 of a reward.
"""

from typing import Any

import numpy as np

from hardstep.rl.classic.compiled import LANES, jit
from hardstep.rl.classic.mathematics import normalize_angle, sine_and_cosine

Lanes = Any  # float64 arrays; numba finds their types
CARTPOLE, ACROBOT, MOUNTAIN_CAR, PENDULUM = range(4)
_TILT = 12 * 2 * np.pi / 360
_MASS = 0.1 + 1.0
_POLE = 0.1 * 0.5
_FASTEST_1, _FASTEST_2 = 4 * np.pi, 9 * np.pi
_TURN = np.pi - -np.pi
_INERTIA = 1.0 * 0.5**2 + 1.0


@jit
def move(environment: int, state: Lanes, action: Lanes, reward: Lanes, ended: Lanes) -> None:
    """One step of every lane."""
    if environment == CARTPOLE:
        move_cartpole(state, action, reward, ended)
    elif environment == ACROBOT:
        move_acrobot(state, action, reward, ended)
    elif environment == MOUNTAIN_CAR:
        move_mountain_car(state, action, reward, ended)
    else:
        move_pendulum(state, action, reward, ended)


@jit
def look(environment: int, state: Lanes, observed: Lanes) -> None:
    """What the policy sees of the states."""
    if environment == ACROBOT:
        look_at_acrobot(state, observed)
    elif environment == PENDULUM:
        look_at_pendulum(state, observed)
    else:
        for i in range(len(state)):
            for lane in range(LANES):
                observed[i, lane] = np.float64(np.float32(state[i, lane]))


@jit
def move_cartpole(state: Lanes, action: Lanes, reward: Lanes, ended: Lanes) -> None:
    """CartPole-v1: Euler's method."""
    for lane in range(LANES):
        x, speed, angle, spin = state[0, lane], state[1, lane], state[2, lane], state[3, lane]
        force = 10.0 if action[lane] == 1.0 else -10.0
        sine, cosine = sine_and_cosine(angle)
        push = (force + _POLE * (spin * spin) * sine) / _MASS
        turn = (9.8 * sine - cosine * push) / (0.5 * (4.0 / 3.0 - 0.1 * (cosine * cosine) / _MASS))
        gain = push - _POLE * turn * cosine / _MASS
        x = x + 0.02 * speed
        angle = angle + 0.02 * spin
        state[0, lane] = x
        state[1, lane] = speed + 0.02 * gain
        state[2, lane] = angle
        state[3, lane] = spin + 0.02 * turn
        out = (x < -2.4) | (x > 2.4) | (angle < -_TILT) | (angle > _TILT)
        ended[lane] = 1.0 if out else 0.0
        reward[lane] = 1.0


@jit
def accelerate_acrobot(
    angle1: float, angle2: float, spin1: float, spin2: float, torque: float
) -> tuple[float, float]:
    """Angular accelerations of both links, by Sutton and Barto's book."""
    sine, cosine = sine_and_cosine(angle2)
    d1 = 0.25 + (1.25 + cosine) + 1.0 + 1.0
    d2 = (0.25 + 0.5 * cosine) + 1.0
    phi2 = 0.5 * 9.8 * sine_and_cosine(angle1 + angle2 - np.pi / 2.0)[1]
    phi1 = (
        -0.5 * (spin2 * spin2) * sine
        - 1.0 * spin2 * spin1 * sine
        + 1.5 * 9.8 * sine_and_cosine(angle1 - np.pi / 2)[1]
        + phi2
    )
    turn2 = (torque + d2 / d1 * phi1 - 0.5 * (spin1 * spin1) * sine - phi2) / (
        _INERTIA - d2 * d2 / d1
    )
    return -(d2 * turn2 + phi1) / d1, turn2


@jit
def wrap(angle: float) -> float:
    """Back into [-pi, pi]; a step never leads further than four turns away."""
    for _ in range(4):
        angle = angle - _TURN if angle > np.pi else angle
    for _ in range(4):
        angle = angle + _TURN if angle < -np.pi else angle
    return angle


@jit
def clip(value: float, limit: float) -> float:
    """Within plus and minus the limit; NaN stays."""
    value = -limit if value < -limit else value
    return limit if value > limit else value


@jit
def move_acrobot(state: Lanes, action: Lanes, reward: Lanes, ended: Lanes) -> None:
    """Acrobot-v1: one step of Runge and Kutta's method of fourth order."""
    for lane in range(LANES):
        a, b, c, d = state[0, lane], state[1, lane], state[2, lane], state[3, lane]
        u = action[lane] - 1.0
        e1, f1 = accelerate_acrobot(a, b, c, d, u)
        c2, d2 = c + 0.1 * e1, d + 0.1 * f1
        e2, f2 = accelerate_acrobot(a + 0.1 * c, b + 0.1 * d, c2, d2, u)
        c3, d3 = c + 0.1 * e2, d + 0.1 * f2
        e3, f3 = accelerate_acrobot(a + 0.1 * c2, b + 0.1 * d2, c3, d3, u)
        c4, d4 = c + 0.2 * e3, d + 0.2 * f3
        e4, f4 = accelerate_acrobot(a + 0.2 * c3, b + 0.2 * d3, c4, d4, u)
        a = wrap(a + 0.2 / 6.0 * (c + 2 * c2 + 2 * c3 + c4))
        b = wrap(b + 0.2 / 6.0 * (d + 2 * d2 + 2 * d3 + d4))
        state[0, lane] = a
        state[1, lane] = b
        state[2, lane] = clip(c + 0.2 / 6.0 * (e1 + 2 * e2 + 2 * e3 + e4), _FASTEST_1)
        state[3, lane] = clip(d + 0.2 / 6.0 * (f1 + 2 * f2 + 2 * f3 + f4), _FASTEST_2)
        height = -sine_and_cosine(a)[1] - sine_and_cosine(b + a)[1]
        ended[lane] = 1.0 if height > 1.0 else 0.0
        reward[lane] = 0.0 if height > 1.0 else -1.0


@jit
def look_at_acrobot(state: Lanes, observed: Lanes) -> None:
    """Cosine and sine of both angles, and both speeds."""
    for lane in range(LANES):
        sine1, cosine1 = sine_and_cosine(state[0, lane])
        sine2, cosine2 = sine_and_cosine(state[1, lane])
        observed[0, lane] = np.float64(np.float32(cosine1))
        observed[1, lane] = np.float64(np.float32(sine1))
        observed[2, lane] = np.float64(np.float32(cosine2))
        observed[3, lane] = np.float64(np.float32(sine2))
        observed[4, lane] = np.float64(np.float32(state[2, lane]))
        observed[5, lane] = np.float64(np.float32(state[3, lane]))


@jit
def move_mountain_car(state: Lanes, action: Lanes, reward: Lanes, ended: Lanes) -> None:
    """MountainCar-v0."""
    for lane in range(LANES):
        position, speed = state[0, lane], state[1, lane]
        cosine = sine_and_cosine(3 * position)[1]
        speed = clip(speed + ((action[lane] - 1.0) * 0.001 + cosine * (-0.0025)), 0.07)
        position = position + speed
        position = -1.2 if position < -1.2 else position
        position = 0.6 if position > 0.6 else position
        speed = 0.0 if (position == -1.2) & (speed < 0) else speed
        state[0, lane] = position
        state[1, lane] = speed
        ended[lane] = 1.0 if (position >= 0.5) & (speed >= 0) else 0.0
        reward[lane] = -1.0


@jit
def move_pendulum(state: Lanes, action: Lanes, reward: Lanes, ended: Lanes) -> None:
    """Pendulum-v1: the torque and its share of the reward are float32, as gymnasium's are."""
    for lane in range(LANES):
        angle, spin = state[0, lane], state[1, lane]
        torque = np.float32(clip(action[lane], 2.0))
        sine = sine_and_cosine(angle)[0]
        off = normalize_angle(angle)
        effort = np.float64(np.float32(0.001) * (torque * torque))
        reward[lane] = -(off * off + 0.1 * (spin * spin) + effort)
        push = np.float64(np.float32(3.0) * torque)
        spin = clip(spin + (15.0 * sine + push) * 0.05, 8.0)
        state[0, lane] = angle + spin * 0.05
        state[1, lane] = spin
        ended[lane] = 0.0


@jit
def look_at_pendulum(state: Lanes, observed: Lanes) -> None:
    """Cosine and sine of the angle, and the speed."""
    for lane in range(LANES):
        sine, cosine = sine_and_cosine(state[0, lane])
        observed[0, lane] = np.float64(np.float32(cosine))
        observed[1, lane] = np.float64(np.float32(sine))
        observed[2, lane] = np.float64(np.float32(state[1, lane]))
