"""Sine, cosine and tanh without branches, so that LLVM computes them for several lanes at once.

Arguments are reduced in two parts (Cody and Waite), then polynomials take over: those of fdlibm
for sine and cosine, Taylor's for the exponential. The error is a few 1e-16 up to |x| = 1e5.
"""

import numpy as np

from hardstep.rl.classic.compiled import jit

_QUADRANTS = 2 / np.pi
_QUARTER = 1.57079632673412561417e00  # 33 bits of pi / 2, and the rest
_QUARTER_REST = 6.07710050650619224932e-11
_TURN = 6.28318530693650245667  # 33 bits of the float64 next to 2 pi, and the rest
_TURN_REST = 2 * np.pi - _TURN
_LOG2 = 6.93147180369123816490e-01  # 32 bits of log 2, and the rest
_LOG2_REST = 1.90821492927058770002e-10
_HALVINGS = tuple((float(n), 2.0**-n) for n in (32, 16, 8, 4, 2, 1))
_SATURATED = 20.0  # where tanh is 1 in float64


@jit
def sine_and_cosine(angle: float) -> tuple[float, float]:
    """Both, for an angle in radians."""
    quadrant = np.rint(angle * _QUADRANTS)
    rest = (angle - quadrant * _QUARTER) - quadrant * _QUARTER_REST
    z = rest * rest
    sine = 1.58969099521155010221e-10 * z - 2.50507602534068634195e-08
    sine = sine * z + 2.75573137070700676789e-06
    sine = sine * z - 1.98412698298579493134e-04
    sine = sine * z + 8.33333333332248946124e-03
    sine = sine * z - 1.66666666666666324348e-01
    sine = rest + rest * z * sine
    cosine = -1.13596475577881948265e-11 * z + 2.08757232129817482790e-09
    cosine = cosine * z - 2.75573143513906633035e-07
    cosine = cosine * z + 2.48015872894767294178e-05
    cosine = cosine * z - 1.38888888888741095749e-03
    cosine = cosine * z + 4.16666666666666019037e-02
    cosine = 1.0 - (0.5 * z - z * z * cosine)
    half = quadrant * 0.5
    turned = np.floor(half)
    odd = half != turned
    quarter = turned * 0.5
    opposite = quarter != np.floor(quarter)
    first = cosine if odd else sine
    second = sine if odd else cosine
    return (-first if opposite else first), (-second if odd != opposite else second)


@jit
def tanh(x: float) -> float:
    """Exact to a few units in the last place, also near zero; NaN stays NaN."""
    size = abs(x)
    size = _SATURATED if size > _SATURATED else size
    twice = -2.0 * size
    power = np.rint(twice * 1.4426950408889634)
    r = (twice - power * _LOG2) - power * _LOG2_REST
    p = r * 1.6059043836821613e-10 + 2.08767569878681e-09
    p = p * r + 2.505210838544172e-08
    p = p * r + 2.755731922398589e-07
    p = p * r + 2.7557319223985893e-06
    p = p * r + 2.48015873015873e-05
    p = p * r + 1.984126984126984e-04
    p = p * r + 1.388888888888889e-03
    p = p * r + 8.333333333333333e-03
    p = p * r + 4.1666666666666664e-02
    p = p * r + 1.6666666666666666e-01
    p = p * r + 0.5
    p = r + r * r * p  # exp(r) - 1
    factor = _raise_two(power)
    less = factor * p + (factor - 1.0)  # exp(-2 |x|) - 1
    result: float = -less / (less + 2.0)
    return -result if x < 0 else result


@jit
def _raise_two(power: float) -> float:
    """Two to a power of -63 to 0, from its binary digits."""
    left = -power
    result = 1.0
    for size, factor in _HALVINGS:
        has = left >= size
        result = result * factor if has else result
        left = left - size if has else left
    return result


@jit
def normalize_angle(angle: float) -> float:
    """The same angle in [-pi, pi): gymnasium's ((x + pi) % (2 pi)) - pi."""
    shifted = angle + np.pi
    turns = np.floor(shifted / (2 * np.pi))
    normal: float = ((shifted - turns * _TURN) - turns * _TURN_REST) - np.pi
    return normal
