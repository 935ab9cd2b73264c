"""Products of which attention reads little: left undone, exact, and not before a hard choice."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from hardstep.evaluation import Problem, gathered_tier
from hardstep.evaluation.gathered import deferred, products
from hardstep.evaluation.gathered.deferred import Deferred, multiply_deferred
from hardstep.nn import build
from hardstep.subspaces import RowWise

from . import random_attention
from .random_models import Hand
from .test_incremental import compare

pytestmark = pytest.mark.usefixtures("always_gather")
TOKENS, WIDTH = 12, 8


def draw(*shape, seed=0):
    return torch.randn(
        shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed + len(shape))
    )


def make():
    """Values of 3 candidates, 2 examples, 5 tokens and 12 units."""
    return Deferred(draw(3, 2, 5, 4), draw(4, 12), draw(12), (0, 1))


def test_views_parts_and_scales_change_the_factors_alone():
    own = make()
    whole = own.build()
    own, whole = own.reshape([5, 1, 3, 4]), whole.reshape(3, 2, 5, 1, 3, 4)
    own, whole = own.permute([2, 1, 3, 0]), whole.permute(0, 1, 4, 3, 5, 2)
    own, whole = own.narrow(0, 1, 2), whole.narrow(2, 1, 2)
    own, whole = own.narrow(3, 2, 2), whole.narrow(5, 2, 2)
    own, whole = own.scale(lambda part: part / 3), whole / 3
    torch.testing.assert_close(own.build(), whole)
    own, whole = own.narrow(0, 1, 1).drop(0), whole[:, :, 1]
    own, whole = own.narrow(2, 1, 1).drop(2), whole[..., 1]
    torch.testing.assert_close(own.build(), whole)
    assert own.shape == [1, 4]


def test_a_bias_is_added_to_units_only():
    own = make()
    torch.testing.assert_close(own.add(draw(12)).build(), own.build() + draw(12))
    assert own.permute([1, 0]).add(draw(5)) is None


def test_a_view_across_rows_and_units_needs_the_numbers():
    assert make().reshape([60]) is None
    assert make().permute([1, 0]).reshape([60]) is None
    merged = make().reshape([5, 3, 4]).permute([0, 2, 1])
    assert merged.reshape([5, 12]) is None  # not as the units lie in memory


@pytest.mark.parametrize("heads", [1, 3])
@pytest.mark.parametrize("bias", [False, True])
def test_few_queries_meet_keys_and_values_that_are_not_made(heads, bias):
    own = make() if bias else Deferred(draw(3, 2, 5, 4), draw(4, 12), None, (0, 1))
    apart = own.reshape([5, heads, 12 // heads])
    keys, values = apart.permute([1, 2, 0]), apart.permute([1, 0, 2])
    query, weights = draw(3, 2, heads, 2, 12 // heads), draw(1, 2, heads, 2, 5)
    torch.testing.assert_close(multiply_deferred(query, keys), query @ keys.build())
    torch.testing.assert_close(multiply_deferred(weights, values), weights @ values.build())


def pose(attention):
    """Two blocks, of which the first token is classified."""
    blocks = (random_attention.Block(attention(), WIDTH, first=n == 0) for n in range(2))
    first, second = blocks
    model = build(
        lambda: Hand(
            lambda m, x: m.out(m.second(m.first(m.embed(x), None), None)[:, 0]),
            embed=nn.Linear(5, WIDTH),
            first=first,
            second=second,
            out=nn.Linear(WIDTH, 3),
        ),
        0,
    )
    inputs = torch.randn(6, TOKENS, 5, generator=torch.Generator().manual_seed(2))
    return Problem(model.double().eval(), inputs.double(), torch.arange(6) % 3, F.cross_entropy)


@pytest.fixture
def undone(monkeypatch):
    """Counts the products that were done without the factor that is left undone."""
    counted = []

    def count(other, own):
        found = deferred.multiply_deferred(other, own)
        counted.append(found is not None)
        return found

    monkeypatch.setattr(products, "multiply_deferred", count)
    return counted


ATTENTION = {
    "heads": lambda: random_attention.Heads(WIDTH, 2, hard=False),
    "one head": lambda: random_attention.Heads(WIDTH, 1, hard=False),
    "torch's": lambda: random_attention.Whole(WIDTH, weights=False),
    "torch's, with weights": lambda: random_attention.Whole(WIDTH, weights=True),
}


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("name", ATTENTION)
def test_a_class_token_leaves_keys_and_values_undone(name, compiled, undone, monkeypatch):
    if compiled:
        monkeypatch.setattr(gathered_tier, "COMPILED_BYTES", 0)
    _, _, wrong, evaluator = compare(pose(ATTENTION[name]), RowWise(1), torch.float64)
    assert not wrong
    assert undone
    assert all(undone)
    assert set(evaluator.notes.values()) <= {"gathered", "fused"}


def test_scores_of_a_hard_choice_are_computed_as_the_model_does(undone):
    problem = pose(lambda: random_attention.Heads(WIDTH, 2, hard=True))
    _, _, wrong, _ = compare(problem, RowWise(1), torch.float64)
    assert not wrong
    assert not undone
