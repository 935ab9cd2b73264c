"""What stands between products as one compiled pass, and outer products: exact, and taken."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from hardstep.evaluation import Problem, gathered_tier
from hardstep.evaluation.fused.compile import run_kernel
from hardstep.evaluation.fused.expressions import KINDS, Access, Fn, Reduction
from hardstep.evaluation.fused.graph import Graph
from hardstep.evaluation.gathered import gathering, runner
from hardstep.evaluation.gathered.outer import Outer, multiply_both
from hardstep.evaluation.gathered.row_code import Output, write_pass
from hardstep.nn import build
from hardstep.subspaces import RowWise

from . import random_attention
from .random_models import Hand
from .test_incremental import FAST, check_losses, compare

pytestmark = pytest.mark.usefixtures("always_gather")
# Hard and soft heads, torch's own attention and layers, means, class tokens, one token.
SEEDS = (0, 2, 5, 11, 18, 25, 34)


@pytest.fixture
def passes(monkeypatch):
    """Compile passes for small networks, too; counts those that ran."""
    monkeypatch.setattr(gathered_tier, "COMPILED_BYTES", 0)
    counted = []
    run = runner.run_pass

    def count(read, made, *given):
        counted.append(made)
        return run(read, made, *given)

    monkeypatch.setattr(runner, "run_pass", count)
    return counted


@pytest.mark.parametrize("seed", SEEDS)
def test_passes_get_the_losses_of_plain_forward_passes(seed, passes):
    problem, names = random_attention.draw_problem(seed)
    evaluator, _ = check_losses(problem, names, RowWise(1), torch.float64)
    assert set(evaluator.notes.values()) <= FAST, names
    assert passes


def pose(hard):
    """One block of attention over numbers, with positions, and the mean of its tokens."""
    model = build(
        lambda: Hand(
            lambda m, x: m.out(m.layer(m.embed(x) + m.position, None).mean(1)),
            embed=nn.Linear(5, 6),
            layer=random_attention.Block(random_attention.Heads(6, 1, hard), 6, first=False),
            out=nn.Linear(6, 3),
        ),
        0,
    )
    model.position = nn.Parameter(torch.randn(7, 6, generator=torch.Generator().manual_seed(1)))
    inputs = torch.randn(8, 7, 5, generator=torch.Generator().manual_seed(2))
    return Problem(model.double(), inputs.double(), torch.arange(8) % 3, F.cross_entropy)


@pytest.mark.parametrize("hard", [False, True])
def test_every_tensor_of_a_block_of_attention_is_gathered_and_exact(hard, passes):
    _, _, wrong, evaluator = compare(pose(hard), RowWise(1), torch.float64)
    assert not wrong
    notes = {names[0]: note for names, note in evaluator.notes.items()}
    assert {notes[name] for name in notes if name.startswith(("embed", "layer"))} == {"gathered"}
    assert notes["position"] == "gathered"
    read = {name.rstrip("0123456789") for made in passes for t in made.tables if (name := t.part)}
    assert {"base", "delta", "factor", "scale", "here"} <= read  # each way to be changed


def test_losses_do_not_depend_on_how_many_candidates_a_pass_takes(passes, monkeypatch):
    whole = compare(pose(hard=True), RowWise(1), torch.float64)[1]
    monkeypatch.setattr(gathering, "PASS_BYTES", 1)
    pieces = compare(pose(hard=True), RowWise(1), torch.float64)[1]
    torch.testing.assert_close(whole, pieces, rtol=1e-12, atol=0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("size", [2, 5, 16, 37])
def test_reductions_along_rows(size, dtype):
    values = torch.randn(3, 4, 5, size, dtype=dtype, generator=torch.Generator().manual_seed(size))
    values[0, 0, 0, 1:] = values[0, 0, 0, 0]  # the first of the same is the best
    values[1, 0, 0, -1] = torch.nan
    values[1, 1, 0] = -torch.inf
    g, kind = Graph(), KINDS[dtype]
    x = g.read(Access.LANE, kind, 0, size)
    exprs = [g.reduce(one, x) for one in (Reduction.MAX, Reduction.ARGMAX, Reduction.ARGMIN)]
    outputs = [*map(Output, exprs), Output(g.apply(Fn.MUL, x, x), summed=True)]
    best, *places = (torch.empty(3, 4, 5, dtype=t) for t in (dtype, torch.int64, torch.int64))
    total = torch.empty(3, 4, size, dtype=dtype)
    strides = [20 * size, 5 * size, size, *[20, 5, 1] * 3, 4 * size, size, 0]
    given = [torch.tensor(strides), values, best, *places, total]
    run_kernel(write_pass(size, [kind], outputs), given, 12, 4, 5, 0)
    torch.testing.assert_close(best, values.amax(-1), rtol=0, atol=0, equal_nan=True)
    assert torch.equal(places[0], values.argmax(-1))
    assert torch.equal(places[1], values.argmin(-1))
    torch.testing.assert_close(total, (values * values).sum(2), equal_nan=True)


def draw(*shape):
    return torch.randn(
        shape, dtype=torch.float64, generator=torch.Generator().manual_seed(len(shape))
    )


def test_the_product_of_two_outer_products_is_one():
    left = Outer(draw(1, 4, 2, 5, 3), ((draw(6, 4, 2, 5, 1), draw(6, 1, 2, 1, 3)),))
    turned = Outer(draw(1, 4, 2, 7, 3), ((draw(6, 4, 1, 7, 1), draw(6, 1, 2, 1, 3)),))
    right = turned.permute([0, 2, 1])
    found = multiply_both(left.base @ right.base, left, right)
    torch.testing.assert_close(found.build(), left.build() @ right.build())


def test_a_view_that_splits_the_units_leaves_an_outer_product_one():
    outer = Outer(draw(1, 4, 5, 6), ((draw(3, 4, 5, 1), draw(3, 1, 1, 6)),))
    found = outer.reshape([5, 6], [5, 2, 3])
    torch.testing.assert_close(found.build(), outer.build().reshape(3, 4, 5, 2, 3))


def test_heads_are_merged_where_each_candidate_changes_one():
    mark = torch.zeros(3, 1, 1, 2, 4, dtype=torch.float64)
    mark[0, ..., 1, 2], mark[1, ..., 0, :] = 1, draw(4)
    outer = Outer(draw(1, 4, 5, 2, 4), ((draw(3, 4, 5, 2, 1), mark),))
    found = outer.reshape([5, 2, 4], [5, 8])
    torch.testing.assert_close(found.build(), outer.build().reshape(3, 4, 5, 8))
    both = Outer(outer.base, ((draw(3, 4, 5, 2, 1), draw(3, 1, 1, 2, 4)),))
    assert both.reshape([5, 2, 4], [5, 8]) is None
