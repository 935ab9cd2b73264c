import pytest
import torch
from torch import nn

from hardstep.errors import ConfigError
from hardstep.optim import PolyStep
from hardstep.subspaces import Full, Layout, RowWise, Scaled, trainable


def layout():
    return Layout(trainable(nn.Linear(4, 3).double()))


@pytest.mark.parametrize("inner", [Full(), RowWise(1), RowWise(1, redraw=1, share=0.4)])
def test_a_coordinate_goes_the_factor_as_far(inner):
    plain, scaled = (kind.bind(layout(), 2, 0) for kind in (inner, Scaled(inner, 0.25)))
    for step in range(3):
        move = torch.arange(1.0, plain.dim + 1, dtype=torch.float64)
        expected, found = plain.expand(0.25 * move), scaled.expand(move)
        assert all(torch.equal(found[name], expected[name]) for name in expected)
        assert plain.commit(step, 0.25 * move) == scaled.commit(step, move)


def test_only_a_factor_of_one_leaves_directions_orthonormal():
    assert Scaled(RowWise(1), 1.0).bind(layout(), 2, 0).orthonormal
    assert not Scaled(RowWise(1), 0.5).bind(layout(), 2, 0).orthonormal


def test_a_run_with_shorter_radii_equals_one_in_a_scaled_subspace():
    x = torch.randn(8, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    ends = []
    for factor in (1.0, 0.5):
        model = nn.Linear(4, 3).double()
        nn.init.ones_(model.weight)
        nn.init.zeros_(model.bias)
        settings = PolyStep(model).settings.changed(subspace=Scaled(RowWise(1), factor))
        step, probe = settings.step_radius.value / factor, settings.probe_radius.value / factor
        radii = {
            "step_radius": type(settings.step_radius)(step),
            "probe_radius": type(settings.probe_radius)(probe),
        }
        opt = PolyStep(model, settings, **radii, seed=0)
        for _ in range(3):
            opt.step(x, x[:, 0].abs().long(), nn.functional.cross_entropy)
        ends.append(model.weight.detach().clone())
    torch.testing.assert_close(ends[0], ends[1], rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    ("of", "factor", "message"),
    [
        (RowWise, 1.0, "of must be a subspace such as RowWise"),
        (Full(), 0.0, "Scaled: factor must be a number > 0"),
    ],
)
def test_what_cannot_be_scaled_is_refused(of, factor, message):
    with pytest.raises(ConfigError, match=message):
        Scaled(of, factor)
