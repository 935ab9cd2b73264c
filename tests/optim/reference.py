"""The step again, with loops: slow, obvious, and what the optimizer is tested against.

It shares no arithmetic with `step.py` or the evaluators. Draws (rotations, jitter) and the
projection Π are given; everything between them and the next parameters is written out.
"""

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from hardstep.optim.step import Reach

Loss = Callable[[Tensor], float]  # of the flat parameter vector θ
Rule = Callable[[list[list[float]], float], list[list[float]]]  # costs, ε -> weights


def softmax_weights(costs: list[list[float]], temperature: float) -> list[list[float]]:
    """Row softmax of −C/ε."""
    rows = []
    for row in costs:
        lowest = min(row)
        unnormalized = [math.exp(-(cost - lowest) / temperature) for cost in row]
        rows.append([value / sum(unnormalized) for value in unnormalized])
    return rows


def greedy_weights(costs: list[list[float]], temperature: float) -> list[list[float]]:
    """All weight on the best vertex, shared between exact ties."""
    return top_weights(1)(costs, temperature)


def top_weights(k: int) -> Rule:
    """Equal weight on the k best vertices; a tie at the edge shares what is left."""

    def weights(costs: list[list[float]], temperature: float) -> list[list[float]]:
        del temperature
        rows = []
        for row in costs:
            edge = sorted(row)[k - 1]
            better = [cost < edge for cost in row]
            tied = [cost == edge for cost in row]
            rest = (k - sum(better)) / sum(tied)
            rows.append([(b + rest * t) / k for b, t in zip(better, tied, strict=True)])
        return rows

    return weights


def transport_weights(column_penalty: float, iterations: int = 5000) -> Rule:
    """KL-penalised transport by plain scaling iterations; λ = ∞ is Sinkhorn."""

    def weights(costs: list[list[float]], temperature: float) -> list[list[float]]:
        exponent = (
            1.0 if math.isinf(column_penalty) else column_penalty / (column_penalty + temperature)
        )
        num_rows, num_columns = len(costs), len(costs[0])
        kernel = [[math.exp(-(c - min(row)) / temperature) for c in row] for row in costs]
        v = [1.0] * num_columns
        for _ in range(iterations):
            u = [(1 / num_rows) / sum(k * w for k, w in zip(row, v, strict=True)) for row in kernel]
            for j in range(num_columns):
                received = sum(u[i] * kernel[i][j] for i in range(num_rows))
                v[j] = ((1 / num_columns) / received) ** exponent
        plan = [[k * w for k, w in zip(row, v, strict=True)] for row in kernel]
        return [[t / sum(row) for t in row] for row in plan]

    return weights


def step(
    base: Tensor,
    projection: Tensor,
    particles: Sequence[Sequence[int]],
    rotations: Tensor,
    vertices: Tensor,
    loss: Loss,
    weights: Rule,
    *,
    temperature: float,
    reach: Reach,
    probe_jitter: float,
    step_jitter: Sequence[float],
) -> tuple[Tensor, Tensor]:
    """One step from θ = `base`; returns the move of z and the losses (P, V, K).

    Args:
        base: Flat parameters (N,).
        projection: Π, (N, n).
        particles: For each particle the coordinates it holds, −1 on padding.
        rotations: (P, d_p, d_p).
        vertices: (V, d_p).
        loss: Of flat parameters.
        weights: The solver.
        temperature: ε.
        reach: The lengths r_s and r_p, and K.
        probe_jitter: η.
        step_jitter: η_i per particle.
    """
    move = torch.zeros(projection.shape[1], dtype=base.dtype)
    losses = torch.zeros(len(particles), len(vertices), reach.num_probes, dtype=torch.float64)
    for p, slots in enumerate(particles):
        for v, vertex in enumerate(vertices):
            direction = rotations[p] @ vertex
            for k in range(reach.num_probes):
                length = reach.probe_radius * (1 + probe_jitter) * (k + 1) / (reach.num_probes + 1)
                z = torch.zeros(projection.shape[1], dtype=base.dtype)
                for i, slot in enumerate(slots):
                    if slot >= 0:
                        z[slot] = length * direction[i]
                losses[p, v, k] = loss(base + projection @ z)
    table = weights(losses.mean(dim=2).tolist(), temperature)
    for p, slots in enumerate(particles):
        for v, vertex in enumerate(vertices):
            target = reach.step_radius * (1 + step_jitter[p]) * (rotations[p] @ vertex)
            for i, slot in enumerate(slots):
                if slot >= 0:
                    move[slot] += table[p][v] * target[i]
    return move, losses
