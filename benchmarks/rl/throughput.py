"""Steps a second of the compiled environments, of gymnasium and of stable-baselines3, in one run.

    taskset -c 1 python -m benchmarks.rl.throughput      one core
    python -m benchmarks.rl.throughput --threads 2       two

The policy has 16 ReLU units. Gymnasium steps without its wrappers, with random actions and without
a policy, which only helps it. Stable-baselines3 plays whole episodes with an untrained PPO, whose
network of 64, 64 units is its default. Appended to benchmarks/results/rl-throughput.jsonl.
"""

import argparse
import json
import time
from pathlib import Path

import gymnasium
import numpy as np
import torch
from stable_baselines3.common.evaluation import evaluate_policy

from hardstep._files import provenance
from hardstep.baselines import stable
from hardstep.rl.classic import CLASSIC, play, starts

RECORDS = Path(__file__).parents[1] / "results" / "rl-throughput.jsonl"
CANDIDATES, STARTS, HIDDEN, REPEATS = 256, 64, 16, 3
ROUND = 5_000  # steps of gymnasium
EPISODES = 5  # of stable-baselines3


def time_ours(environment: str, threads: int) -> dict[str, float]:
    """Steps a second, by the clock and by processor time, best of some; the mean length."""
    specification = CLASSIC[environment]
    random = np.random.default_rng(0)
    sizes = [specification.observations, HIDDEN, specification.outputs]
    layers = [
        (random.normal(size=(CANDIDATES, after, before)), random.normal(size=(CANDIDATES, after)))
        for before, after in zip(sizes, sizes[1:], strict=False)
    ]
    mean, scale = np.zeros(specification.observations), np.ones(specification.observations)
    chosen = starts(environment, range(STARTS))
    seconds, busy = [], []
    for _ in range(REPEATS + 1):
        begun, worked = time.perf_counter(), time.process_time()
        episodes = play(
            environment,
            layers,
            "relu",
            mean,
            scale,
            chosen,
            horizon=specification.horizon,
            threads=threads,
        )
        seconds.append(time.perf_counter() - begun)
        busy.append(time.process_time() - worked)
    steps = int(episodes.lengths.sum())
    return {
        "steps per second": steps / min(seconds[1:]),
        "steps per second of processor time": steps / min(busy[1:]),
        "mean length": float(episodes.lengths.mean()),
    }


def time_gymnasium(environment: str) -> float:
    """Steps a second of processor time, the best of some rounds."""
    env = gymnasium.make(environment).unwrapped
    env.action_space.seed(0)
    actions = [env.action_space.sample() for _ in range(ROUND)]
    best = 0.0
    for number in range(REPEATS):
        env.reset(seed=number)
        worked = time.process_time()
        for action in actions:
            if env.step(action)[2]:
                env.reset()
        best = max(best, ROUND / (time.process_time() - worked))
    return best


def time_stable(environment: str) -> float:
    """Steps a second of processor time, the best of some rounds."""
    best = 0.0
    for number in range(REPEATS):
        tally = stable.Tally(gymnasium.make(environment), every=10**9)
        model = stable.build("ppo", tally, "float", number)
        worked = time.process_time()
        evaluate_policy(model, model.get_env(), EPISODES, warn=False)
        best = max(best, tally.interactions / (time.process_time() - worked))
    return best


def main() -> None:
    """Print a row for each environment and append it to the records."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--threads", type=int, default=1)
    threads = parser.parse_args().threads
    torch.set_num_threads(1)
    print(f"{'environment':15} {'ours':>12} {'of cpu time':>12} {'gymnasium':>10} {'sb3':>7}")
    for environment in CLASSIC:
        ours, theirs = time_ours(environment, threads), time_gymnasium(environment)
        learners = time_stable(environment)
        speed, of_cpu = ours["steps per second"], ours["steps per second of processor time"]
        print(f"{environment:15} {speed:12,.0f} {of_cpu:12,.0f} {theirs:10,.0f} {learners:7,.0f}")
        row = {"environment": environment, "threads": threads} | ours
        command = f"python -m benchmarks.rl.throughput --threads {threads}"
        record = provenance() | {"command": command} | row
        record |= {"gymnasium": theirs, "stable-baselines3": learners}
        with RECORDS.open("a") as file:
            file.write(json.dumps(record) + "\n")


if __name__ == "__main__":
    main()
