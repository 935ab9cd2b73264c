import pytest
import torch

from hardstep.errors import ConfigError
from hardstep.nn import Staircase


@pytest.mark.parametrize("levels", [1, 2, 5, 16])
def test_it_takes_exactly_its_levels_where_the_sigmoid_is_below_one(levels):
    inputs = torch.linspace(-12.0, 12.0, 100_001, dtype=torch.float64)
    expected = torch.arange(levels, dtype=torch.float64) / levels
    torch.testing.assert_close(Staircase(levels)(inputs).unique(), expected)


def test_it_reaches_one_only_where_the_sigmoid_rounds_to_one():
    inputs = torch.tensor([12.0, 1000.0])
    assert Staircase(5)(inputs).tolist() == pytest.approx([0.8, 1.0])


def test_it_steps_where_the_sigmoid_crosses_a_multiple_of_one_over_levels():
    edges = torch.logit(torch.tensor([0.2, 0.4, 0.6, 0.8], dtype=torch.float64))
    stairs = Staircase(5)
    torch.testing.assert_close(
        stairs(edges + 1e-9) - stairs(edges - 1e-9), torch.full_like(edges, 0.2)
    )


def test_it_stays_within_one_step_below_the_sigmoid():
    inputs = torch.randn(1000, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    for levels in (3, 50):
        gap = torch.sigmoid(inputs) - Staircase(levels)(inputs)
        assert gap.min() >= 0.0
        assert gap.max() < 1.0 / levels


def test_its_gradient_is_zero():
    inputs = torch.randn(10, requires_grad=True)
    Staircase()(inputs).sum().backward()
    assert not inputs.grad.any()


def test_fewer_than_one_level_is_refused():
    with pytest.raises(ConfigError, match="Staircase: levels must be a whole number >= 1, got 0"):
        Staircase(0)


def test_printing_shows_the_levels():
    assert repr(Staircase(7)) == "Staircase(levels=7)"
