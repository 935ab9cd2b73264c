import math

import numpy as np
import pytest
import torch

from hardstep.geometry import Orthoplex, Simplex
from hardstep.optim import Reach
from hardstep.solvers import Greedy, RowSoftmax
from hardstep.theory.steps import (
    Stepper,
    directions,
    greedy_stepper,
    mean_square,
    quadratic,
    radial,
    rotations,
    softmax_steps,
    step_on,
    turns,
    walk,
    wall,
)  # fmt: skip
from hardstep.theory.suite import Setup

LOOKS = Orthoplex(2).vertices().numpy()[None]  # +e_1, −e_1, +e_2, −e_2


@pytest.mark.parametrize("frame", [Orthoplex(2), Orthoplex(5), Simplex(2), Simplex(5)])
def test_frames_are_centered_and_tight(frame):
    vertices = frame.vertices().numpy()
    assert np.abs(vertices.sum(axis=0)).max() <= 1e-14
    scale = len(vertices) / frame.dim
    np.testing.assert_allclose(vertices.T @ vertices, scale * np.eye(frame.dim), atol=1e-14)


def test_turns_average_to_nothing():
    turned = turns(12)
    np.testing.assert_allclose(turned.mean(axis=0), 0, atol=1e-15)
    squares = turned @ turned.swapaxes(1, 2)
    np.testing.assert_allclose(squares, np.broadcast_to(np.eye(2), (12, 2, 2)), atol=1e-15)


def test_rotations_follow_the_seed():
    assert np.array_equal(rotations(1, 5, 3), rotations(1, 5, 3))
    assert not np.array_equal(rotations(1, 5, 3), rotations(2, 5, 3))


@pytest.mark.parametrize("num_probes", [1, 3])
def test_steps_are_softmax_averages_of_directions(num_probes):
    looks = directions(Simplex(3), rotations(0, 7, 3))
    base = np.array([0.1, -0.2, 0.3])

    def loss(points):
        return (points**2 * np.array([1.0, 2.0, 3.0])).sum(axis=-1)

    steps = softmax_steps(looks, loss, base, 0.6, 0.5, num_probes)
    lengths = [0.6 * k / (num_probes + 1) for k in range(1, num_probes + 1)]
    costs = np.mean([loss(base + length * looks) for length in lengths], axis=0)
    shares = torch.softmax(torch.from_numpy(-costs / 0.5), dim=1).numpy()
    moves = np.einsum("nv,nvd->nd", shares, looks)
    np.testing.assert_allclose(steps.costs, costs, atol=1e-14)
    np.testing.assert_allclose(steps.shares, shares, atol=1e-14)
    np.testing.assert_allclose(steps.moves, moves, atol=1e-14)
    linear = 1 / 4 - (costs - costs.mean(axis=1, keepdims=True)) / (4 * 0.5)
    rest = np.einsum("nv,nvd->nd", shares - linear, looks)
    np.testing.assert_allclose(steps.remainders(0.5), rest, atol=1e-14)


def test_quadratic_per_particle():
    points = np.array([[[[1.0, 2.0]]], [[[3.0, 1.0]]]])
    both = quadratic(np.array([[2.0, 1.0], [1.0, 4.0]])[:, None, None])(points)
    assert both.ravel().tolist() == [3.0, 6.5]


def test_wall_is_beyond_its_position():
    assert wall(0.5)(np.array([[0.5, 9.0], [0.6, -9.0]])).tolist() == [0.0, 1.0]


def test_greedy_step_goes_to_the_best_vertex():
    # Costs ½‖z ± e‖² are least along −e_2 from (0.1, 0.3).
    move = greedy_stepper(np.ones(2), 1.0).move(np.array([[0.1, 0.3]]), LOOKS)
    assert move.tolist() == [[0.0, -1.0]]


def test_softmax_step_by_hand():
    move = step_on(LOOKS, np.array([[0.0, 1.0, 1.0, 1.0]]), RowSoftmax(), 0.5)
    rest = math.exp(-2.0)
    assert move.displacement.tolist()[0] == pytest.approx([(1 - rest) / (1 + 3 * rest), 0.0])


def test_stepper_applies_both_jitters():
    stepper = Stepper(wall(1.05), Reach(2.0, 2.0, 1), Greedy())
    at = np.zeros((1, 2))
    assert stepper.move(at, LOOKS).tolist() == [[0.0, 0.0]]  # probes at 1.0 see no wall
    # A probe at 1.1 does: three vertices tie, and their mean is −e_1/3, here 1.5 times 2 long.
    seen = stepper.move(at, LOOKS, probe_jitter=0.1, step_jitter=np.array([0.5]))
    assert seen[0] == pytest.approx([-1.0, 0.0])


def test_walk_shares_rotations_between_copies():
    start = np.tile([[0.3, 0.4], [0.5, -0.1]], (2, 1))
    at = list(walk(Setup(), 1, greedy_stepper(np.ones(2), 1.0), start, 5, copies=2))[-1]
    assert at[:2].tolist() == at[2:].tolist()
    assert at[0].tolist() != at[1].tolist()


def test_free_walk_after_one_step():
    assert mean_square(Setup(), 1, 10, 3, 1)[0] == pytest.approx(1.0)


def test_radial_part():
    assert radial(np.array([[1.0, 1.0]]), np.array([[0.0, -2.0]])).tolist() == [-1.0]
