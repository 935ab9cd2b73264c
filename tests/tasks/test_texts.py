import json

import matplotlib.image
import pytest
import torch

from hardstep import tasks
from hardstep.cli.evaluate import run_evaluate
from hardstep.cli.options import EvaluateOptions, TrainOptions
from hardstep.cli.train import run_train
from hardstep.data import load_reviews, reviews
from hardstep.evaluation import OneByOne
from hardstep.nn import ArgmaxSelfAttention, SoftmaxSelfAttention, build
from hardstep.optim import PolyStep
from hardstep.tasks.texts import TEXTS, TransformerClassifier, words_and_turns

KINDS = pytest.mark.parametrize("kind", [ArgmaxSelfAttention, SoftmaxSelfAttention])


def make(kind, **options):
    words = len(load_reviews().vocabulary)
    return build(lambda: TransformerClassifier(words, 8, 2, 2, 12, kind, **options), 0)


def test_the_defaults_have_the_sizes_of_the_paper():
    model = build(lambda: TransformerClassifier(30_522), 0)
    assert sum(p.numel() for p in model.parameters()) == 4_188_546


@KINDS
def test_padding_and_the_other_sentences_of_a_batch_change_nothing(kind):
    model = make(kind).double()
    sentences = reviews(0).train.inputs[:20]
    together = model(torch.nn.functional.pad(sentences, (0, 7)))
    for number, sentence in enumerate(sentences):
        alone = model(sentence[sentence != 0][None])[0]
        torch.testing.assert_close(together[number], alone, rtol=0, atol=1e-12)


def test_words_behind_the_longest_are_not_read():
    model = make(SoftmaxSelfAttention, longest=4)
    sentences = reviews(0).train.inputs[:20]
    assert torch.equal(model(sentences), model(sentences[:, :4]))


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-10), (torch.float32, 1e-5)])
@KINDS
def test_losses_of_a_step_are_those_of_plain_forward_passes(kind, dtype, tolerance):
    model = make(kind).to(dtype)
    train = reviews(0).train
    batch = (train.inputs[:12], train.labels[:12], torch.nn.functional.cross_entropy)
    optimizer = PolyStep(model, words_and_turns(10), seed=0)
    plain = PolyStep(model, words_and_turns(10), seed=0, evaluator=OneByOne())
    proposal = optimizer.propose()
    expected = plain.evaluate(proposal, *batch)
    found = optimizer.evaluate(proposal, *batch)
    torch.testing.assert_close(found, expected, rtol=tolerance, atol=tolerance)


def test_words_that_do_not_occur_stay_where_they_are():
    model = make(SoftmaxSelfAttention)
    train = reviews(0).train
    before = model.words.weight.detach().clone()
    optimizer = PolyStep(model, words_and_turns(10), seed=0)
    optimizer.step(train.inputs[:6], train.labels[:6], torch.nn.functional.cross_entropy)
    moved = (model.words.weight != before).any(dim=1).nonzero()[:, 0]
    assert set(moved.tolist()) == set(train.inputs[:6].unique().tolist()) - {0}


def test_training_on_the_reviews_made_here_learns_which_words_praise(tmp_path, capsys):
    out = tmp_path / "run"
    assert run_train(TrainOptions("reviews", out=out, json=True)) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["test_accuracy"] > 0.75
    assert matplotlib.image.imread(out / "picture.png").std() > 0.05
    assert run_evaluate(EvaluateOptions(out, json=True)) == 0
    again = json.loads(capsys.readouterr().out)
    assert again["test_accuracy"] == result["test_accuracy"]


@pytest.mark.parametrize("name", TEXTS)
def test_tasks_are_found_without_reading_data(name, monkeypatch):
    monkeypatch.setenv("HARDSTEP_DATA", "/nowhere")
    assert tasks.find(name).data_name in ("sst2", "reviews")
