import pytest
import torch

from hardstep.solvers.acceleration import Anderson, Relaxed

MOVES = torch.linspace(-30, 30, 2001, dtype=torch.float64)


@pytest.mark.parametrize("relaxation", [0.5, 0.9, 1.0, 1.3, 1.5, 1.8, 1.95])
def test_a_relaxed_move_of_any_size_never_lowers_the_dual(relaxation):
    current = torch.zeros_like(MOVES)
    taken = Relaxed(relaxation).move_row(current, MOVES)
    # Per unit of mass: linear term minus the change of the sum over the row.
    gain = taken + torch.exp(-MOVES) - torch.exp(taken - MOVES)
    assert (gain >= -1e-12).all()


@pytest.mark.parametrize("relaxation", [0.5, 1.5, 1.95])
def test_small_moves_are_relaxed_in_full(relaxation):
    current = torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64)
    target = torch.tensor([1.04, 1.5, -9.0], dtype=torch.float64)
    expected = (1 - relaxation) * current + relaxation * target
    torch.testing.assert_close(Relaxed(relaxation).move_column(current, target, 1.0), expected)


def test_relaxation_one_is_the_exact_update():
    current, target = torch.tensor([0.1, 1e30]), torch.tensor([0.7, -3.0])
    assert torch.equal(Relaxed().move_row(current, target), target)


def test_mixing_solves_a_linear_fixed_point_in_as_many_steps_as_dimensions():
    generator = torch.Generator().manual_seed(0)
    matrix = torch.rand(3, 3, generator=generator, dtype=torch.float64) / 3
    offset = torch.ones(3, dtype=torch.float64)
    solution = torch.linalg.solve(torch.eye(3, dtype=torch.float64) - matrix, offset)
    step, point = Anderson(depth=3), torch.zeros(3, dtype=torch.float64)
    for _ in range(5):
        target = matrix @ point + offset
        point = step.move_column(point, target, float((target - point).abs().max()))
    torch.testing.assert_close(point, solution, rtol=1e-10, atol=0)


@pytest.mark.parametrize("violation", [1.0, 7.0, float("nan")])
def test_a_mixed_point_that_does_not_help_is_dropped_for_the_plain_update(violation):
    step = Anderson(depth=2)
    step.move_column(torch.tensor([0.0, 0.0]), torch.tensor([1.0, 0.5]), 2.0)
    plain = torch.tensor([1.5, 0.9])
    mixed = step.move_column(torch.tensor([1.0, 0.5]), plain, 1.0)
    assert not torch.equal(mixed, plain)
    assert torch.equal(step.move_column(mixed, torch.tensor([9.0, 9.0]), violation), plain)


def test_mixing_survives_residuals_that_do_not_change():
    step = Anderson(depth=2)
    step.move_column(torch.tensor([0.0, 0.0]), torch.tensor([1.0, 0.0]), 2.0)
    mixed = step.move_column(torch.tensor([1.0, 0.0]), torch.tensor([2.0, 0.0]), 1.0)
    assert mixed.tolist() == [2.0, 0.0]
