"""A copy of an optimizer, by pickle or in memory, goes on bit for bit and on its own."""

import copy
import pickle

import numpy as np
import pytest
import torch

from hardstep.errors import NonFiniteLossError
from hardstep.evaluation import Batched, Incremental, OneByOne
from hardstep.optim import AskTell, PolyStep

from .test_state import CONFIGURATIONS, same
from .toys import Net, batch, mse, parameters, staircase, tiny


def through_pickle(value):
    return pickle.loads(pickle.dumps(value))


WAYS = pytest.mark.parametrize("copied", [through_pickle, copy.deepcopy])
CHANGES = ("warm blocks", "own schedules", "adaptive", "low rank", "momentum of weights", "sketch")


@WAYS
@pytest.mark.parametrize("name", CHANGES)
def test_a_copy_of_an_optimizer_takes_the_same_steps_with_a_model_of_its_own(copied, name):
    opt = tiny(Net(staircase), **CONFIGURATIONS[name])
    for i in range(2):
        opt.step(*batch(i), mse)
    other = copied(opt)
    assert all(p is other.tensors[n] for n, p in other.model.named_parameters())
    before = parameters(opt.model)
    losses = [other.step(*batch(i), mse) for i in (2, 3)]
    assert torch.equal(parameters(opt.model), before)
    assert [opt.step(*batch(i), mse) for i in (2, 3)] == losses
    assert torch.equal(parameters(opt.model), parameters(other.model))
    assert same(opt.state_dict(), other.state_dict())


@WAYS
@pytest.mark.parametrize("evaluator", [Incremental(memory_budget=1 << 24), Batched(7), OneByOne()])
def test_a_copy_keeps_its_evaluator_and_finds_out_again_what_that_knew(copied, evaluator):
    opt = tiny(Net(), evaluator=evaluator)
    opt.step(*batch(), mse)
    other = copied(opt)
    assert repr(other.evaluator) == repr(evaluator)
    assert other.evaluator is not evaluator
    assert other.step(*batch(1), mse) == opt.step(*batch(1), mse)


@WAYS
def test_a_copy_of_a_search_goes_on_bit_for_bit_from_the_middle_of_a_generation(copied):
    def bowl(x):
        return ((x - 1.5) ** 2).sum(axis=-1)

    for generations in range(4):
        es = AskTell(x0=np.zeros(5), bounds=(-3.0, 2.0), seed=4)
        for _ in range(generations):
            es.tell(bowl(es.ask()))
        points = es.ask()
        es.tell(float(bowl(points[0])), points[0])
        other = copied(es)
        for search in (es, other):
            for _ in range(6):
                rest = search.ask()[search.pending]
                search.tell(bowl(rest), rest)
        assert np.array_equal(es.ask(), other.ask())
        assert (es.best.loss, es.evaluations) == (other.best.loss, other.evaluations)


def test_what_pickle_does_not_take_is_named_and_can_still_be_copied_in_memory():
    opt = PolyStep(Net(), temperature=lambda step: 1.0)
    with pytest.raises((pickle.PicklingError, AttributeError), match=r"pickle .*<lambda>"):
        pickle.dumps(opt)
    assert copy.deepcopy(opt).step(*batch(), mse) == opt.step(*batch(), mse)


def test_an_error_that_a_worker_sends_arrives():
    error = through_pickle(NonFiniteLossError(3, (0, 2, 1)))
    assert (error.count, error.first) == (3, (0, 2, 1))
    assert str(error) == str(NonFiniteLossError(3, (0, 2, 1)))
