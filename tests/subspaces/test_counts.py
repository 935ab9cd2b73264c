"""The step arithmetic of the paper's experiments, at their full size."""

from collections import Counter
from functools import cache

import pytest
import torch

from hardstep.geometry import ParticleMap, Simplex, num_particles
from hardstep.subspaces import Layout, RowWise, trainable
from hardstep.tasks.architectures import (
    argmax_net,
    int8_mlp,
    mlp,
    moe_net,
    spiking_mlp,
    staircase_mlp,
)

DIM = 8
# model, rank, parameters, d_sub, particles, evaluations per step
TABLE = {
    "snn": (spiking_mlp, 4, 101_770, 4_338, 543, 4_887),
    "mnist": (mlp, 8, 101_770, 8_538, 1_068, 9_612),
    "int8": (int8_mlp, 8, 118_282, 10_714, 1_340, 12_060),
    "staircase": (staircase_mlp, 4, 118_282, 5_490, 687, 6_183),
    "argmax": (argmax_net, 8, 119_306, 11_738, 1_468, 13_212),
    "moe": (moe_net, 4, 235_672, 14_120, 1_766, 15_894),
}
EACH_TASK = pytest.mark.parametrize("task", TABLE)


@cache
def layout_of(task):
    with torch.random.fork_rng(devices=[]):
        return Layout(trainable(TABLE[task][0]()))


def budgets(task):
    """Coordinates of every tensor, without drawing the projections."""
    rank = TABLE[task][1]
    return [spec.budget(rank) for spec in layout_of(task)]


@EACH_TASK
def test_parameters_coordinates_particles_and_evaluations_are_those_of_the_paper(task):
    _, _, parameters, coordinates, particles, evaluations = TABLE[task]
    assert layout_of(task).num_parameters == parameters
    assert sum(budgets(task)) == coordinates
    # Each tensor is padded to whole particles.
    assert sum(num_particles(size, DIM) for size in budgets(task)) == particles
    assert particles * Simplex(DIM).num_vertices == evaluations


def test_only_the_mixture_of_experts_needs_more_particles_than_the_papers_concatenation():
    extra = {t: TABLE[t][4] - num_particles(TABLE[t][3], DIM) for t in TABLE}
    assert {task: more for task, more in extra.items() if more} == {"moe": 1}


@EACH_TASK
def test_row_wise_particles_are_exactly_those_of_the_table(task):
    _, rank, _, _, particles, _ = TABLE[task]
    subspace = RowWise(rank).bind(layout_of(task), DIM, 0)
    assert ParticleMap(subspace.group_sizes, DIM).num_particles == particles
    assert subspace.orthonormal


def test_row_wise_spreads_the_spiking_network_as_specified():
    first, second = RowWise(4).bind(layout_of("snn"), DIM, 0).blocks
    assert Counter(first.group_sizes) == {32: 88, 24: 40}
    assert Counter(second.group_sizes) == {56: 9, 64: 1}
    assert first.names == ("stages.0.weight", "stages.0.bias")
