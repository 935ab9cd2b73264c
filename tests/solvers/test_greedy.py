import pytest
import torch

from hardstep.errors import ConfigError
from hardstep.solvers import Greedy, TopK

from .catalogue import random_costs


def test_greedy_puts_all_mass_on_the_best_vertex():
    costs = torch.tensor([[3.0, 1.0, 2.0], [0.0, 5.0, 5.0]])
    assert Greedy().solve(costs, 1.0).weights.tolist() == [[0.0, 0.5, 0.0], [0.5, 0.0, 0.0]]


def test_greedy_shares_the_mass_between_exact_ties():
    costs = torch.tensor([[1.0, 2.0, 1.0, 3.0]])
    assert Greedy().solve(costs, 1.0).weights.tolist() == [[0.5, 0.0, 0.5, 0.0]]


@pytest.mark.parametrize("solver", [Greedy(), TopK(1), TopK(2), TopK(3)], ids=repr)
def test_a_constant_row_has_uniform_weights(solver):
    costs = torch.tensor([[0.37, 0.37, 0.37], [0.1, 0.2, 0.3]], dtype=torch.float64)
    weights = solver.solve(costs, 1.0).weights[0]
    torch.testing.assert_close(weights, torch.full((3,), 1 / 6, dtype=torch.float64))


def test_top_k_averages_over_the_k_best_vertices():
    costs = torch.tensor([[3.0, 1.0, 2.0, 4.0]])
    assert TopK(2).solve(costs, 1.0).weights.tolist() == [[0.0, 0.5, 0.5, 0.0]]


def test_vertices_tied_at_the_boundary_share_the_last_places():
    costs = torch.tensor([[1.0, 2.0, 2.0, 2.0, 2.0, 9.0]])
    expected = torch.tensor([[1 / 3, 1 / 6, 1 / 6, 1 / 6, 1 / 6, 0.0]])
    torch.testing.assert_close(TopK(3).solve(costs, 1.0).weights, expected)


def test_ties_above_the_boundary_do_not_lose_their_places():
    costs = torch.tensor([[1.0, 1.0, 2.0, 3.0]])
    expected = torch.tensor([[1 / 3, 1 / 3, 1 / 3, 0.0]])
    torch.testing.assert_close(TopK(3).solve(costs, 1.0).weights, expected)


def test_top_one_is_greedy():
    costs = (random_costs(30, 5) * 4).round()  # many ties
    assert torch.equal(TopK(1).solve(costs, 1.0).weights, Greedy().solve(costs, 1.0).weights)


def test_top_all_is_uniform():
    weights = TopK(5).solve(random_costs(4, 5), 1.0).weights
    torch.testing.assert_close(weights, torch.full_like(weights, 1 / 20))


@pytest.mark.parametrize("solver", [Greedy(), TopK(2)], ids=repr)
def test_the_temperature_does_not_matter(solver):
    costs = random_costs(6, 4)
    assert torch.equal(solver.solve(costs, 1e-6).weights, solver.solve(costs, 1e6).weights)


@pytest.mark.parametrize("k", [0, -3])
def test_fewer_than_one_vertex_is_refused(k):
    with pytest.raises(ConfigError, match=f"TopK: k must be a whole number >= 1, got {k}"):
        TopK(k)


def test_more_places_than_vertices_are_refused():
    with pytest.raises(ConfigError, match="number of vertices, 3, got 4"):
        TopK(4).solve(torch.zeros(2, 3), 1.0)
