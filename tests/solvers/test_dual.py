import pytest
import torch

from hardstep.solvers.dual import Stopping


def test_a_tolerance_below_rounding_is_raised_to_it():
    stopping, column = Stopping(10, 1e-12), torch.zeros(3)
    assert stopping.reached(1e-6, column)
    assert not stopping.reached(1e-5, column)
    assert not stopping.reached(1e-6, column.double())


@pytest.mark.parametrize("size", [1e4, 1e30])
def test_large_potentials_are_never_called_converged_beyond_a_thousandth(size):
    stopping = Stopping(10, 1e-12)
    column = torch.tensor([-size, size])
    assert stopping.reached(1e-3, column)
    assert not stopping.reached(2e-3, column)


def test_a_violation_that_is_not_a_number_is_not_convergence():
    assert not Stopping(10, 1e-3).reached(float("nan"), torch.zeros(2))
