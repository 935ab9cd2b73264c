"""The long check of the compiled environments against gymnasium; takes some minutes.

    python -m tests.rl.classic_long [CartPole-v1 ...]

A million steps of each that gymnasium took, and 10,000 episodes of each in closed loop, ten
policies on a thousand seeds: mean returns agree within three standard errors, on the same seeds and
on others. Appended to benchmarks/results/rl-classic.jsonl.
"""

import json
import sys
from pathlib import Path

import gymnasium
import numpy as np

from hardstep._files import provenance
from hardstep.rl.classic import CLASSIC, observe, play, starts, step
from tests.rl.classic_reference import make_layers, play_plainly, visit

RECORDS = Path(__file__).parents[2] / "benchmarks" / "results" / "rl-classic.jsonl"
STEPS = 1_000_000
PART = 50_000  # steps that are compared at once
POLICIES, SEEDS = 10, 1_000


def compare_steps(environment: str, count: int) -> dict[str, float]:
    """Largest differences over so many steps."""
    worst = {"state": 0.0, "reward": 0.0, "observation": 0.0, "terminated": 0.0}
    for part in range(0, count, PART):
        visits = visit(environment, PART, seed=1_000_000 + part)
        after, rewards, terminated = step(environment, visits.states, visits.actions)
        shown = observe(environment, visits.after).astype(np.float64)
        found = {
            "state": np.abs(after - visits.after).max(),
            "reward": np.abs(rewards - visits.rewards).max(),
            "observation": np.abs(shown - visits.observations).max(),
            "terminated": np.sum(terminated != visits.terminated),
        }
        for name, value in found.items():
            add = name == "terminated"
            worst[name] = worst[name] + float(value) if add else max(worst[name], float(value))
    return worst


def make_policies(environment: str, count: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """Random policies with 16 units; where such never arrive, ones that push along the motion."""
    if environment not in ("Acrobot-v1", "MountainCar-v0"):
        return make_layers(environment, count, 16, seed=3)
    (weights, bias), *_ = make_layers(environment, count, 0, seed=3)
    speed = np.zeros(weights.shape)
    speed[:, 0, -1], speed[:, 2, -1] = -1.0, 1.0
    return [(speed + 0.01 * weights, 0.01 * bias)]


def compare_episodes(environment: str, policies: int, seeds: int) -> dict[str, float]:
    """Mean returns of both, on the same seeds, and by us on others."""
    specification = CLASSIC[environment]
    layers = make_policies(environment, policies)
    mean, scale = np.zeros(specification.observations), np.ones(specification.observations)

    def play_ours(first: int) -> np.ndarray:
        chosen = starts(environment, range(first, first + seeds))
        horizon = specification.horizon
        return play(
            environment, layers, "relu", mean, scale, chosen, horizon=horizon, threads=1
        ).returns

    env = gymnasium.make(environment).unwrapped
    theirs = np.array(
        [
            [
                play_plainly(
                    env, layers, number, "relu", mean, scale, seed, specification.horizon
                ).total
                for seed in range(seeds)
            ]
            for number in range(policies)
        ]
    )
    ours, others = play_ours(0), play_ours(seeds)
    # Policies are the same on both sides: only seeds are chance.
    spread = np.sqrt(theirs.var(axis=1, ddof=1).mean() / theirs.size)
    return {
        "gymnasium": float(theirs.mean()),
        "ours": float(ours.mean()),
        "ours, other seeds": float(others.mean()),
        "standard error": float(spread),
        "equal episodes": float(np.mean(np.abs(ours - theirs) <= 1e-6 * np.abs(theirs))),
    }


def long_check(environment: str, count: int = STEPS, seeds: int = SEEDS) -> dict[str, object]:
    """Both comparisons, and whether they hold."""
    steps = compare_steps(environment, count)
    episodes = compare_episodes(environment, POLICIES, seeds)
    error = episodes["standard error"]
    near = abs(episodes["ours"] - episodes["gymnasium"]) <= 3 * error
    # The difference of two independent means.
    others = abs(episodes["ours, other seeds"] - episodes["gymnasium"]) <= 3 * np.sqrt(2) * error
    exact = steps["state"] <= 1e-10 and steps["terminated"] == 0 and steps["reward"] <= 5e-10
    return {
        "environment": environment,
        "steps": count,
        "largest differences": steps,
        "episodes": POLICIES * seeds,
        "returns": episodes,
        "holds": bool(exact and near and others),
    }


def main() -> None:
    """Check the environments that are named, or all."""
    for environment in sys.argv[1:] or CLASSIC:
        found = long_check(environment)
        print(json.dumps(found), flush=True)
        record = provenance() | {"command": "python -m tests.rl.classic_long"} | found
        with RECORDS.open("a") as file:
            file.write(json.dumps(record) + "\n")


if __name__ == "__main__":
    main()
