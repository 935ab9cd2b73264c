import copy

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from hardstep.errors import ConfigError
from hardstep.nn import BinaryLinear, QuantizedLinear, build
from hardstep.optim.flat_pairs import count_flat_pairs

X = torch.nn.functional.normalize(torch.randn(64, 30, generator=torch.Generator().manual_seed(0)))
BATCHES = [(X, torch.arange(64) % 2)]


def shares(layer, **options):
    return count_flat_pairs(build(lambda: layer(30, 2), 0), BATCHES, cross_entropy, **options)


def test_rounded_weights_cancel_at_small_radii_and_smooth_ones_do_not():
    rounded, smooth = shares(QuantizedLinear), shares(nn.Linear)
    assert list(rounded) == [1e-5, 1e-3, 2e-2]
    # 60 weights of uniform phase in their bins: a pair crosses a wall with 1 − exp(−0.05).
    assert rounded[1e-5] > 0.85
    assert rounded[2e-2] == 0.0
    assert smooth[1e-3] < 0.05


def test_a_bias_that_is_not_rounded_breaks_ties():
    assert shares(BinaryLinear)[1e-3] < 0.3
    assert shares(lambda i, o: BinaryLinear(i, o, bias=False), num=50)[1e-5] > 0.9


def test_shares_depend_on_the_seed_alone_and_the_model_stays():
    model = build(lambda: QuantizedLinear(30, 2), 0)
    before = copy.deepcopy(model.state_dict())
    first, again, other = (
        count_flat_pairs(model, BATCHES, cross_entropy, (3e-4,), 60, seed) for seed in (0, 0, 1)
    )
    assert first == again != other
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())


def test_radii_are_checked():
    with pytest.raises(ConfigError, match="radius must be a number > 0"):
        shares(nn.Linear, radii=(0.0,))
