"""Examples are gathered where that takes less than whole forward passes, and not elsewhere."""

import pytest
import torch
import torch.nn.functional as F
from benchmarks.step.batches import READ
from benchmarks.step.network_ours import build as build_row
from benchmarks.step.network_rows import BATCH, BY_NAME
from torch import nn

from hardstep import PolyStep
from hardstep.evaluation import Incremental, Problem
from hardstep.evaluation.blocks import Fused
from hardstep.evaluation.explain import OperationCounter
from hardstep.evaluation.gathered_tier import Gathered
from hardstep.evaluation.tiling import Tiling
from hardstep.nn import build
from hardstep.subspaces import RowWise

from . import random_attention
from .random_models import Hand
from .test_incremental import compare

SLOWER = "times as long as whole forward passes"


def pose_small():
    """Four tokens of eight numbers, four examples: all of them change, and calls take the time."""
    model = build(
        lambda: Hand(
            lambda m, x: m.out(m.layer(m.embed(x) + m.position, None).mean(1)),
            embed=nn.Linear(5, 8),
            layer=random_attention.Block(random_attention.Heads(8, 1, hard=False), 8, first=False),
            out=nn.Linear(8, 3),
        ),
        0,
    )
    model.position = nn.Parameter(torch.zeros(4, 8))
    inputs = torch.randn(4, 4, 5, generator=torch.Generator().manual_seed(2))
    return Problem(model.double(), inputs.double(), torch.arange(4) % 3, F.cross_entropy)


def test_whole_forward_passes_are_taken_where_gathering_takes_longer():
    _, _, wrong, evaluator = compare(pose_small(), RowWise(1), torch.float64)
    assert not wrong
    assert SLOWER in evaluator.notes[("position",)]
    assert evaluator.path == "batched" or "batched" in evaluator.note


def test_explain_says_why():
    problem = pose_small()
    opt = PolyStep(problem.model, subspace=RowWise(rank=1), seed=0)
    table = opt.explain(problem.inputs, problem.target, F.cross_entropy)
    found = {one.name: one for one in table.parameters}["position"]
    assert found.path == "batched"
    assert found.reason.startswith("gathering the examples that change would take about ")


def test_the_choice_is_the_same_at_any_number_of_threads():
    def choose(threads):
        before = torch.get_num_threads()
        torch.set_num_threads(threads)
        try:
            return compare(pose_small(), RowWise(1), torch.float64)[3].notes
        finally:
            torch.set_num_threads(before)

    assert choose(1) == choose(2)


@pytest.mark.parametrize(
    "name", ["attention-argmax", "attention-softmax", "transformer", "transformer-words"]
)
def test_the_networks_of_the_benchmark_are_gathered(name):
    row = BY_NAME[name]
    inputs, target = READ[row.reads](1, BATCH)
    model = build_row(row)
    opt = PolyStep(model, subspace=RowWise(rank=1), seed=0)
    with torch.no_grad():
        candidates = opt.candidates(opt.propose())
        problem = Problem(model, inputs, target, F.cross_entropy)
        step = Incremental()._begin(candidates, problem)
        for span in candidates.spans():
            tier = Fused if step.names(span)[0].startswith("readout") else Gathered
            assert isinstance(tier(1 << 30).plan(step, span), Tiling), step.names(span)


# -- what explain counts -----------------------------------------------------------------------


def pose_words():
    """One word of every example, the first ones; the others are rare, and most do not occur."""
    model = build(
        lambda: Hand(
            lambda m, x: m.out(m.layer(m.embed(x), None).mean(1)),
            embed=nn.Embedding(60, 16),
            layer=random_attention.Block(
                random_attention.Heads(16, 1, hard=False), 16, first=False
            ),
            out=nn.Linear(16, 3),
        ),
        0,
    )
    words = torch.arange(32 * 6).reshape(32, 6) % 37 + 3
    words[:, 0] = 0
    words[::2, 1] = 1
    return model, words, torch.arange(32) % 3


def test_explain_counts_the_examples_with_a_word(always_gather):
    model, words, target = pose_words()
    opt = PolyStep(model, subspace=RowWise(rank=1), seed=0)
    one = opt.explain(words, target, F.cross_entropy).parameters[0]
    assert one.path == "gathered"
    with torch.no_grad():
        candidates = opt.candidates(opt.propose())
        problem = Problem(model, words, target, F.cross_entropy)
        (span,) = (s for s in candidates.spans() if s.block == one.block)
        step = Incremental()._begin(candidates, problem)
        with OperationCounter() as counter:
            tiling = Gathered(1 << 30).plan(step, span)
            tiling.run([span])
    counted = counter.cost.operations / one.probes
    assert one.cost.operations == pytest.approx(counted, rel=0.25)
    whole = opt.explain(words, target, F.cross_entropy).forward.operations
    assert one.cost.operations < 0.15 * whole  # of the first words it is far more
