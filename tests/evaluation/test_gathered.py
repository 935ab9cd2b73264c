"""Changed examples of many candidates in one batch: exact, and taken where they should be."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from hardstep.evaluation import Problem
from hardstep.evaluation.gathered import Plan, Scene, gathering
from hardstep.evaluation.incremental.walk import Walk
from hardstep.evaluation.ops import REGISTRY
from hardstep.evaluation.trace.record import record
from hardstep.evaluation.trace.slice import Slice
from hardstep.nn import build
from hardstep.subspaces import LayerWise, RowWise

from . import random_attention
from .random_models import Hand
from .test_incremental import FAST, check_losses, compare

pytestmark = pytest.mark.usefixtures("always_gather")
# The fewest that draw every kind of attention and every ending twice, and one with one example.
SEEDS = (0, 2, 3, 5, 6, 11, 12, 18, 24, 25, 26, 34, 35, 38, 47)


@pytest.mark.parametrize("seed", SEEDS)
def test_random_attention_gets_the_losses_of_plain_forward_passes(seed):
    problem, names = random_attention.draw_problem(seed)
    subspace = LayerWise(1) if seed == 38 else RowWise(1)
    evaluator, _ = check_losses(problem, names, subspace, torch.float64)
    assert set(evaluator.notes.values()) <= FAST, names


def test_every_kind_of_attention_and_every_ending_is_drawn():
    drawn = {name for seed in SEEDS for name in random_attention.draw_problem(seed)[1]}
    assert set(random_attention.ATTENTION) | set(random_attention.ENDINGS) <= drawn


WORDS, WIDTH = 12, 4
SEEN = torch.tensor([[1, 2, 3, 0], [1, 4, 4, 0], [1, 2, 5, 6], [1, 0, 0, 0], [1, 7, 3, 5]])


class Reader(nn.Module):
    """Words, a mixture of them and a readout, tied to the words or not."""

    def __init__(self, embed, tied=False):
        super().__init__()
        self.embed, self.tied = embed, tied
        self.mix, self.readout = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, 3)

    def forward(self, x):
        h = self.embed(x)
        if h.dim() == 3:
            h = (h + torch.softmax(self.mix(h) @ h.transpose(1, 2), dim=-1) @ h).mean(dim=1)
        return h @ self.embed.weight.t() if self.tied else self.readout(torch.tanh(h))


def pose_words(words=SEEN, tied=False, embed=None):
    make = embed or (lambda: nn.Embedding(WORDS, WIDTH, padding_idx=0))
    model = build(lambda: Reader(make(), tied), 0).double()
    return Problem(model, words, torch.arange(len(words)) % 3, F.cross_entropy)


def check_words(problem, tier="gathered"):
    _, _, wrong, evaluator = compare(problem, RowWise(1), torch.float64)
    assert not wrong
    assert evaluator.notes[("embed.weight",)] == tier
    return evaluator


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU])
def test_words_that_a_recurrent_layer_reads(kind):
    model = build(
        lambda: Hand(
            lambda m, x: m.out(m.layer(m.embed(x))[0][:, -1]),
            embed=nn.Embedding(WORDS, WIDTH, padding_idx=0),
            layer=kind(WIDTH, 5, batch_first=True),
            out=nn.Linear(5, 3),
        ),
        0,
    ).double()
    evaluator = check_words(Problem(model, SEEN, torch.arange(len(SEEN)) % 3, F.cross_entropy))
    assert "8 of 12 rows occur" in evaluator.note


def test_the_note_says_how_many_rows_occur_in_the_batch():
    evaluator = check_words(pose_words())
    assert "embed.weight: 8 of 12 rows occur in the batch" in evaluator.note


def test_the_candidates_of_rows_that_no_example_reads_have_the_base_loss():
    problem = pose_words()
    candidates, found, wrong, _ = compare(problem, RowWise(1), torch.float64)
    base = problem.run(candidates.base, {}, candidates.seed)
    (span, *_) = [
        s
        for s in candidates.spans()
        if candidates.subspace.blocks[s.block].names[0] == "embed.weight"
    ]
    rows = candidates.changed_rows(span)
    same = found[span.start : span.end] == base
    assert not wrong
    assert same[rows > 7].all()
    assert not same[rows == 1].any()  # a word of every example


@pytest.mark.parametrize(
    "words", [SEEN[:, :1], SEEN[:1], SEEN[:1, :1]], ids=["token", "example", "both"]
)
def test_one_token_and_one_example(words):
    check_words(pose_words(words))


def test_tied_words_are_exact():
    check_words(pose_words(tied=True))


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
@pytest.mark.parametrize("padding", [None, 0])
def test_bags_of_words(mode, padding):
    problem = pose_words(
        embed=lambda: nn.EmbeddingBag(WORDS, WIDTH, mode=mode, padding_idx=padding)
    )
    check_words(problem, tier="incremental" if mode == "max" else "gathered")


def test_losses_do_not_depend_on_how_many_candidates_run_together(monkeypatch):
    problem, _ = random_attention.draw_problem(12, torch.float32)
    _, whole, _, evaluator = compare(problem, RowWise(1), torch.float32)
    assert "gathered" in evaluator.notes.values()
    monkeypatch.setattr(gathering, "PIECE_BYTES", 1)
    _, pieces, _, _ = compare(problem, RowWise(1), torch.float32)
    torch.testing.assert_close(whole, pieces, rtol=1e-6, atol=0)


def plan(model, inputs, name):
    """What the operations behind a parameter read and make."""
    problem = Problem(model, inputs, torch.arange(len(inputs)) % 3, F.cross_entropy)
    base = {key: value.detach() for key, value in model.named_parameters()}
    with torch.no_grad():
        written = record(problem, base, seed=0)
    scene = Scene(written, problem)
    scene.find_calls(REGISTRY)
    return Plan(Walk(Slice(written, [name], REGISTRY), REGISTRY), scene, REGISTRY)


def test_of_the_last_layer_only_the_token_is_computed_that_is_read():
    layer = random_attention.Layer(4, first=False)
    model = Hand(lambda m, x: m.out(m.layer(x, None)[:, 0]), layer=layer, out=nn.Linear(4, 3))
    found = plan(model, torch.randn(6, 5, 4), "layer.layer.linear1.weight")
    made = {node.name: found.parts[node.outputs[0]][1] for node in found.nodes}
    assert made["native_layer_norm"] == (0, 0, 1)


def test_behind_a_hard_choice_only_the_tokens_run_on_that_it_alters():
    layer = random_attention.ATTENTION["hard heads"](4, False)
    model = Hand(lambda m, x: m.out(m.layer(x, None).mean(1)), layer=layer, out=nn.Linear(4, 3))
    inputs = torch.randn(6, 5, 4)
    region = plan(model, inputs, "layer.attention.q.weight").region
    assert region is not None
    assert region.end - region.before > 10  # up to the mean over tokens
    assert plan(model, inputs, "layer.attention.v.weight").region is None
