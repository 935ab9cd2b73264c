"""Numbers of the analysis that a user can ask for: radii, constants, floors, ranks.

    from hardstep.optim import quantities
    quantities.joint_radius(opt.num_particles, quantities.outer_reach(2.0))

`probe_length` is the probe radius as a length, what the paper writes r_p ε; a preset with
`TimesTemperature(r_p)` has r_p itself as the multiple.
"""

import math
from typing import NamedTuple

from hardstep._checks import check_not_negative, check_positive
from hardstep.errors import ConfigError


def smoothing_radius(probe_length: float) -> float:
    """δ = r_p ε / 2: the mean distance of a probe, since the fractions k/(K + 1) average ½."""
    _check(probe_length=probe_length)
    return probe_length / 2


def outer_reach(probe_length: float, num_probes: int = 1, jitter: float = 0.0) -> float:
    """δ_out = r_p ε · K/(K + 1) · (1 + η_max): how far the outermost probe can be."""
    _check(probe_length=probe_length, num_probes=num_probes)
    return probe_length * num_probes / (num_probes + 1) * (1 + jitter)


def joint_radius(num_particles: int, reach: float) -> float:
    """√P · δ_out: how far all particles together can be; the Goldstein radius of the theorem."""
    _check(num_particles=num_particles, reach=reach)
    return math.sqrt(num_particles) * reach


def step_constant(probe_multiple: float, particle_dim: int) -> float:
    """C = r_p / (2 d_p): an expected step is −c · r_s ε times the smoothed gradient."""
    _check(probe_multiple=probe_multiple, particle_dim=particle_dim)
    return probe_multiple / (2 * particle_dim)


class BiasFloor(NamedTuple):
    """The two terms of the bias floor that a run measures, up to the constants of the O(·)."""

    linearization: float  # P d_p² q̄² / r_p²
    saturation: float  # P d_p² σ̄ / r_p²


def bias_floor(
    num_particles: int, particle_dim: int, probe_multiple: float, square: float, saturation: float
) -> BiasFloor:
    """The measured terms of the floor B: P d_p² q̄²/r_p² and P d_p² σ̄/r_p².

    Args:
        num_particles: P.
        particle_dim: d_p.
        probe_multiple: r_p.
        square: q̄, `optimizer.coverage().statistics.square`.
        saturation: σ̄, `optimizer.coverage().statistics.saturation`.
    """
    _check(num_particles=num_particles, particle_dim=particle_dim, probe_multiple=probe_multiple)
    common = num_particles * particle_dim**2 / probe_multiple**2
    return BiasFloor(common * square**2, common * saturation)


def optimal_probe_multiple(
    linearization: float, saturation: float, coupling: float, temperature: float
) -> float:
    """r_p* = [β₂ε / (4(β₁ + β₃ε⁴))]^{1/5}, which minimizes β₁r⁴ + β₂ε/r + β₃r⁴ε⁴."""
    _check(linearization=linearization, saturation=saturation, temperature=temperature)
    check_not_negative("coupling", coupling)
    denominator = 4 * (linearization + coupling * temperature**4)
    return float((saturation * temperature / denominator) ** 0.2)


def jl_rank(num_points: float, distortion: float) -> int:
    """K ≥ 4 ln N / (ϵ²/2 − ϵ³/3): below, no Johnson–Lindenstrauss guarantee is available."""
    _check(num_points=num_points, distortion=distortion)
    if distortion >= 1:
        raise ConfigError(f"distortion must be below 1, got {distortion}")
    return math.ceil(4 * math.log(num_points) / (distortion**2 / 2 - distortion**3 / 3))


def jl_compression(num_points: float, distortion: float, num_parameters: int) -> float:
    """The smallest share of the parameters that such a rank is."""
    _check(num_parameters=num_parameters)
    return jl_rank(num_points, distortion) / num_parameters


def return_radius(
    horizon: int, max_reward: float, num_candidates: int, num_episodes: int, level: float = 0.05
) -> float:
    """2 H R √(ln(2N/α) / 2M): all N mean returns are within it with probability 1 − α.

    Args:
        horizon: H, steps of an episode.
        max_reward: R, the largest reward of a step in absolute value.
        num_candidates: N.
        num_episodes: M, averaged per candidate.
        level: α.
    """
    _check(
        horizon=horizon, max_reward=max_reward, num_candidates=num_candidates,
        num_episodes=num_episodes, level=level,
    )  # fmt: skip
    spread = math.log(2 * num_candidates / level) / (2 * num_episodes)
    return 2 * horizon * max_reward * math.sqrt(spread)


def _check(**values: float) -> None:
    for name, value in values.items():
        check_positive(name, value)
