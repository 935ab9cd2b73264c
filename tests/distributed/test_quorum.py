"""A step that goes on without late tiles, which a run has to ask for; and pools that hang."""

import os
import signal
import time
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context

import pytest
import torch
import torch.nn.functional as F

from hardstep import PolyStep, RowWise
from hardstep.distributed import Futures, Patience, futures
from hardstep.errors import ConfigError
from hardstep.nn import build

from .executors import Staged
from .problems import SETTINGS, TRAIN, Spiking

HASTY = Patience(straggling=1.0, at_least=0.05, quorum=0.7)


def never_answer(start, stop):
    """A fault: some ranges of the first step have no answer, however often they are asked for."""

    def fault(number, worker, reply):
        del number, worker
        late = reply.key.step == 1 and start <= reply.key.start < stop
        return None if late else reply

    return fault


def take_step(evaluator):
    x = torch.randn(40, 6, generator=torch.Generator().manual_seed(0))
    model = build(Spiking, 0)
    opt = PolyStep(model, subspace=RowWise(3), evaluator=evaluator, seed=1, **SETTINGS)
    opt.step(x, (x[:, 0] > 0).long(), F.cross_entropy)
    return model.state_dict()


def test_particles_whose_losses_are_late_stay_and_others_move_as_ever():
    before, exact = build(Spiking, 0).state_dict(), take_step(None)
    engine = Futures(Staged(2, never_answer(0, 250)), 2, patience=HASTY)  # units of `inputs`
    found = take_step(engine)
    here, there, start = (one["inputs.weight"] for one in (found, exact, before))
    same = (here == there).all(dim=1)
    stay = (here - start).abs().amax(dim=1) < 1e-6
    assert engine.counts.left_out > 0
    assert 10 < int((stay & ~same).sum()) < int(same.sum())
    assert int((~stay & ~same).sum()) <= 3  # units of which one particle's losses are there
    assert torch.equal(found["outputs.weight"], exact["outputs.weight"])
    assert engine.counts.as_record(2)["exact"] is False
    assert "inexact: " in engine.path


def test_a_policy_does_without_late_episodes():
    lost = Staged(2, never_answer(0, 1))
    engine = Futures(lost, 2, patience=HASTY)
    TRAIN["policy"](engine, steps=2)
    assert engine.counts.left_out > 0


def test_below_the_quorum_a_step_waits_and_a_quorum_of_one_is_exact():
    fault = never_answer(0, 10**6)
    engine = Futures(Staged(2, fault), 2, patience=Patience(timeout=1, at_least=0.05, quorum=0.5))
    with pytest.raises(Exception, match="no worker has answered for 1 s"):
        TRAIN["closure"](engine, steps=1)
    assert engine.counts.left_out == 0
    assert Futures(Staged(1), 1).counts.as_record(1)["exact"] is True


@pytest.mark.parametrize("quorum", [0, 1.5, "most", float("nan")])
def test_a_quorum_is_a_share(quorum):
    with pytest.raises(ConfigError, match="quorum must be a share above 0, at most 1, got"):
        Patience(quorum=quorum)


def test_explain_says_that_a_quorum_is_inexact():
    model, x = build(Spiking, 0), torch.randn(20, 6)
    opt = PolyStep(model, evaluator=Futures(Staged(2), 2, patience=HASTY), seed=1)
    said = " ".join(str(opt.explain(x, torch.zeros(20).long(), F.cross_entropy)).split())
    assert "inexact: a step continues with 70% of its losses when the others are late" in said


def test_closing_a_pool_ends_a_process_that_is_stopped(monkeypatch):
    monkeypatch.setattr(futures, "ENDED_WITHIN", 0.5)
    make = partial(ProcessPoolExecutor, 1, mp_context=get_context("spawn"))
    engine = Futures(make, 1)
    pid = engine._executor.submit(os.getpid).result()
    os.kill(pid, signal.SIGSTOP)
    began = time.monotonic()
    engine.close()
    assert time.monotonic() - began < 5
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
