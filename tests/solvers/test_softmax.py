import pytest
import torch

from hardstep.solvers import Greedy, RowSoftmax

from .catalogue import random_costs, specification_costs


@pytest.mark.parametrize("temperature", [1e-3, 0.1, 1.0, 1e3])
def test_weights_are_the_softmax_of_negated_costs_over_the_number_of_rows(temperature):
    costs = random_costs(7, 4)
    expected = torch.softmax(-costs / temperature, dim=1) / 7
    torch.testing.assert_close(
        RowSoftmax().solve(costs, temperature).weights, expected, rtol=1e-12, atol=1e-18
    )


def test_the_entropy_pushes_towards_cheap_vertices():
    costs = specification_costs()
    weights = RowSoftmax().solve(costs, 0.1).weights
    assert torch.equal(weights.argmax(dim=1), costs.argmin(dim=1))


def test_a_row_does_not_see_the_others():
    costs = random_costs(6, 3)
    alone = RowSoftmax().solve(costs[2:3], 0.2).weights
    together = RowSoftmax().solve(costs, 0.2).weights
    torch.testing.assert_close(together[2:3] * 6, alone, rtol=1e-14, atol=0)


@pytest.mark.parametrize("temperature", [1e-3, 1.0, 1e3])
def test_a_constant_row_has_uniform_weights(temperature):
    costs = random_costs(3, 5)
    costs[1] = 0.37
    weights = RowSoftmax().solve(costs, temperature).weights
    assert torch.equal(weights[1], torch.full((5,), 1 / 15, dtype=torch.float64))


def test_a_vanishing_temperature_selects_the_best_vertex():
    costs = random_costs(20, 6)
    torch.testing.assert_close(
        RowSoftmax().solve(costs, 1e-6).weights, Greedy().solve(costs, 1e-6).weights
    )


def test_a_high_temperature_spreads_the_mass_evenly():
    weights = RowSoftmax().solve(random_costs(20, 5), 1e6).weights
    torch.testing.assert_close(weights, torch.full_like(weights, 0.01), rtol=1e-5, atol=0)


@pytest.mark.parametrize("temperature", [1e-60, 1e60])
def test_temperatures_outside_float32_give_the_limits_and_no_nan(temperature):
    weights = RowSoftmax().solve(torch.tensor([[1.0, 2.0]]), temperature).weights
    assert weights.tolist() == ([[1.0, 0.0]] if temperature < 1 else [[0.5, 0.5]])


def test_half_a_million_rows_agree_with_the_same_rows_solved_alone():
    costs = torch.rand(500_000, 3, generator=torch.Generator().manual_seed(0))
    plan = RowSoftmax().solve(costs, 0.1)
    sample = RowSoftmax().solve(costs[::50_000], 0.1).weights * 10 / 500_000
    torch.testing.assert_close(plan.weights[::50_000], sample)
    torch.testing.assert_close(plan.weights.sum(dim=1), torch.full((500_000,), 2e-6))


def test_there_are_no_iterations_and_no_potentials():
    plan = RowSoftmax().solve(random_costs(3, 4), 1.0)
    assert (plan.potentials, plan.iterations, plan.converged) == (None, 0, True)
