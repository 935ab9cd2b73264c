"""Any number of workers behind an executor take the steps that this process takes alone."""

import json
import os
import re
from concurrent.futures import BrokenExecutor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from itertools import pairwise
from multiprocessing import get_context
from threading import Lock

import numpy as np
import pytest
import torch
from torch import nn

import hardstep
from hardstep import PolyStep, RowWise
from hardstep.baselines import InSubspace, OpenAiEs
from hardstep.distributed import Futures, Patience
from hardstep.distributed.counts import Counts
from hardstep.distributed.handout import Handout
from hardstep.distributed.messages import VERSION, Answer, Key, Step, Task
from hardstep.errors import ConfigError, ObjectiveError, WorkerError
from hardstep.evaluation import Incremental, tiers
from hardstep.geometry import Biased, Haar
from hardstep.nn import build
from hardstep.subspaces import Adaptive, LowRank
from hardstep.subspaces.rowwise import BoundRedrawn
from hardstep.training import fit

from .executors import Staged
from .problems import SETTINGS, TRAIN, Spiking, hash_run, train_spiking


@pytest.fixture(scope="module")
def alone():
    return {name: train(None) for name, train in TRAIN.items()}


@pytest.mark.parametrize("workers", [1, 2, 3, 4])
@pytest.mark.parametrize("name", TRAIN)
def test_the_same_bits_with_any_number_of_workers(name, workers, alone):
    assert TRAIN[name](Futures(Staged(workers), workers)) == alone[name]


def test_the_same_bits_from_processes(alone):
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        for name, train in TRAIN.items():
            engine = Futures(pool, 2)
            assert train(engine) == alone[name]
            assert len(engine.counts.names) <= 2
            assert f"{os.getpid()}" not in {one.split(":")[1] for one in engine.counts.names}


def test_only_what_moved_travels_after_the_first_step():
    """Weights are sent to each worker once; then it follows moves, and rows of its own data."""
    first, fifth = Futures(Staged(2), 2), Futures(Staged(2), 2)
    train_spiking(first, steps=1)
    train_spiking(fifth, steps=5)
    assert max(first.counts.needs, fifth.counts.needs) <= 4
    assert fifth.counts.drifted == 0


class _Listening(Staged):
    """Keeps the tasks that were handed out."""

    def __init__(self, num):
        super().__init__(num)
        self.tasks = []

    def submit(self, function, task):
        self.tasks.append(task)
        return super().submit(function, task)


def test_a_step_is_announced_and_recorded_once_by_each_worker(alone, monkeypatch):
    written, record = [], tiers.record
    monkeypatch.setattr(tiers, "record", lambda *given: written.append(given) or record(*given))
    executor = _Listening(2)
    assert train_spiking(Futures(executor, 2)) == alone["spiking"]
    steps = {task.key.step for task in executor.tasks}
    assert len(written) == 2 * len(steps)
    last = [task for task in executor.tasks if task.key.step == max(steps)]
    # The batch before a step, and its move after it: workers do not wait for what is between.
    ahead = [task.ahead and bool(task.ahead.asked) for task in last]
    assert ahead == [True] * 2 + [None] * (len(last) - 4) + [False] * 2
    asked = last[2:-2]
    # Probes travel to every worker, not with every tile; and no range is empty by now.
    assert [bool(task.step.question) for task in asked] == [True] * 2 + [False] * (len(asked) - 2)
    tiles = sorted(task.key[2:] for task in asked)
    assert all(stop == start for (_, stop), (start, _) in pairwise(tiles))


MOVING = {
    "redrawn": RowWise(3, redraw=2),
    "in turns": RowWise(3, redraw=1, share=0.5),
    "adaptive": Adaptive(2, every=2),
    "factors": LowRank(2),
}


@pytest.mark.parametrize("subspace", MOVING.values(), ids=MOVING)
def test_subspaces_that_change_are_the_same_on_workers(subspace):
    def fault(number, worker, reply):
        if number == 30:
            executor.forget(0)
        return reply

    alone, executor = train_spiking(None, 6, subspace=subspace), Staged(2, fault)
    assert train_spiking(Futures(executor, 2), 6, subspace=subspace) == alone


class _Pair:
    """Two workers, of which the second answers when somebody has worked meanwhile."""

    workers = 2

    def __init__(self):
        self.futures = []

    def submit(self, task):
        self.futures.append(Future())
        if len(self.futures) == 1:
            self.answer(task)
        self.task = task
        return self.futures[-1]

    def answer(self, task):
        start, stop = task.key[2:]
        rows = np.arange(start, stop, dtype=np.float64)
        reply = Answer(task.key, start, rows.shape, rows.tobytes(), 0.0, 0.0, "pair")
        self.futures[-1].set_result(reply)

    def tend(self):
        pass


def test_what_is_offered_is_done_once_when_a_worker_has_nothing_left():
    port, done = _Pair(), []

    def work():
        done.append(len(port.futures))
        port.answer(port.task)

    tasks = [Task(Key("run", 1, start, start + 2), Step(VERSION)) for start in (0, 2)]
    handout = Handout(port, tasks, lambda task, need: task, Patience(timeout=9), Counts(), work)
    assert handout.collect().tolist() == [0, 1, 2, 3]
    assert done == [2]


@pytest.mark.parametrize("rotation", [Haar(), Biased()])
def test_the_next_rotations_are_offered_unless_they_look_back(rotation):
    engine, offered = Futures(Staged(2), 2), []
    engine.while_waiting = offered.append
    alone = train_spiking(None, 3, rotation=rotation)
    assert train_spiking(engine, 3, rotation=rotation) == alone
    assert len(offered) == (3 if rotation == Haar() else 0)
    engine.while_waiting = lambda work: work()  # before any loss of the step is there
    assert train_spiking(engine, 3, rotation=rotation) == alone


def test_bases_are_drawn_by_workers_before_the_step_that_needs_them(monkeypatch):
    drawn, loaded = [], []
    draw, load = RowWise.draw, BoundRedrawn.load_state_dict

    def watch_load(self, state):
        before = len(drawn)
        load(self, state)
        loaded.append(len(drawn) - before)

    monkeypatch.setattr(RowWise, "draw", lambda *given: drawn.append(given) or draw(*given))
    monkeypatch.setattr(BoundRedrawn, "load_state_dict", watch_load)
    train_spiking(Futures(Staged(2), 2), 6, subspace=RowWise(3, redraw=2))
    assert len(drawn) == 1 + 3 * 3  # here and by two workers; at the start workers are sent it
    assert loaded
    assert not any(loaded)


def test_a_worker_that_is_replaced_or_has_drifted_is_sent_what_it_lacks(alone):
    executor = Staged(2)

    def fault(number, worker, reply):
        if number == 7:
            executor.forget(0)
        if number == 12:  # as a processor that rounds otherwise would have it
            (run,) = executor.workers[1]._runs.values()
            next(iter(run.job.base.values())).data.add_(1e-3)
        return reply

    executor.fault = fault
    engine = Futures(executor, 2)
    assert train_spiking(engine) == alone["spiking"]
    assert engine.counts.needs >= 4  # twice at the start
    assert engine.counts.drifted >= 1


def test_answers_that_are_late_double_or_of_another_step_are_dropped(alone):
    kept = {}

    def fault(number, worker, reply):
        kept.setdefault(number, reply)
        if number % 5 == 0:
            return kept[number - 3]  # of another tile or step
        return reply

    engine = Futures(Staged(3, fault), 3)
    assert train_spiking(engine) == alone["spiking"]
    assert engine.counts.dropped > 0


def test_a_tile_that_raises_is_handed_out_again_and_gives_up_after_some_tries(alone):
    def sometimes(number, worker, reply):
        if number in (5, 14, 23):
            raise OSError("the board does not answer")
        return reply

    engine = Futures(Staged(2, sometimes), 2)
    assert train_spiking(engine) == alone["spiking"]
    assert engine.counts.retries > 0
    assert engine.counts.reason == "OSError: the board does not answer"

    def always(number, worker, reply):
        raise OSError("no board")

    with pytest.raises(OSError, match="no board") as seen:
        train_spiking(Futures(Staged(2, always), 2, patience=Patience(tries=2)))
    assert "raised this 2 times" in seen.value.__notes__[0]


def test_a_tile_that_never_succeeds_may_count_as_not_finite():
    def fault(number, worker, reply):
        if getattr(reply.key, "start", None) == 0:
            raise OSError("a broken corner")
        return reply

    engine = Futures(Staged(2, fault), 2, patience=Patience(failed="nan"))
    model = build(Spiking, 0)
    opt = PolyStep(model, subspace=RowWise(3), evaluator=engine, **SETTINGS)
    opt.step(torch.ones(4, 6), torch.zeros(4).long(), nn.functional.cross_entropy)
    assert engine.counts.failed == 1
    assert 0 < opt.report.nonfinite < opt.evaluations_per_step


def test_a_loss_that_is_not_finite_is_looked_at_twice(alone):
    spoiled = []

    def fault(number, worker, reply):
        if number < 9 or spoiled or not getattr(reply, "rows", b""):
            return reply
        spoiled.append(number)
        return reply._replace(rows=np.full(reply.shape, np.nan).tobytes())

    engine = Futures(Staged(2, fault), 2)
    assert train_spiking(engine) == alone["spiking"]
    assert engine.counts.confirmed == len(spoiled) == 1


def test_a_straggler_is_overtaken(alone):
    def fault(number, worker, reply):
        return None if number == 9 else reply

    engine = Futures(Staged(2, fault), 2, patience=Patience(at_least=0.3, straggling=1.0))
    assert train_spiking(engine) == alone["spiking"]
    assert engine.counts.duplicates >= 1


def test_an_executor_that_breaks_is_made_again_or_ends_the_run_with_a_sentence(alone, tmp_path):
    def fault(number, worker, reply):
        if number == 11:
            raise BrokenExecutor("a process was terminated")
        return reply

    made = iter([Staged(2, fault), Staged(2)])
    engine = Futures(lambda: next(made), 2)
    assert train_spiking(engine) == alone["spiking"]
    assert engine.counts.lost == 1

    opt = PolyStep(build(Spiking, 0), evaluator=Futures(Staged(2, fault), 2), **SETTINGS)
    batches = [(torch.ones(4, 6), torch.zeros(4).long())]
    with pytest.raises(WorkerError, match=r"lost a process .* saved after step \d in") as seen:
        fit(opt.model, batches, optimizer=opt, steps=9, checkpoint=tmp_path / "run.pt")
    assert str(seen.value).count("\n") == 0
    assert (tmp_path / "run.pt").exists()


def test_nobody_answers():
    engine = Futures(Staged(2, lambda *_: None), 2, patience=Patience(timeout=0.5))
    with pytest.raises(WorkerError, match=r"no worker has answered for 0\.5 s"):
        train_spiking(engine)


def test_a_run_resumes_on_another_number_of_workers(tmp_path):
    def train(evaluator, steps, resume=False, path=None):
        model = build(Spiking, 0)
        opt = PolyStep(model, subspace=RowWise(2), evaluator=evaluator, **SETTINGS)
        x = torch.randn(30, 6, generator=torch.Generator().manual_seed(0))
        batches = [(x, torch.arange(30) % 4)]
        fit(model, batches, optimizer=opt, steps=steps, checkpoint=path, resume=resume)
        return hash_run(model, opt)

    whole = train(None, 5)
    path = tmp_path / "run.pt"
    train(Futures(Staged(3), 3), 2, path=path)
    assert train(Futures(Staged(2), 2), 5, resume=True, path=path) == whole


def test_a_user_may_edit_weights_data_and_the_model_between_steps():
    def train(evaluator):
        model = build(lambda: nn.Sequential(nn.Linear(6, 5), nn.Dropout(0.2), nn.Linear(5, 4)), 0)
        opt = PolyStep(model, subspace=RowWise(2), evaluator=evaluator, **SETTINGS)
        x, y = torch.ones(9, 6), torch.arange(9) % 4
        for step in range(4):
            opt.step(x, y, nn.functional.cross_entropy)
            x *= 1.5
            model[1].p = 0.1 * step
            if step == 1:
                model[0].weight.data.mul_(0.5)
            if step == 2:
                model.eval()
        return hash_run(model, opt)

    assert train(Futures(Staged(2), 2)) == train(None)


def test_a_baseline_is_shared_as_well():
    def train(evaluator):
        model = build(Spiking, 0)
        opt = InSubspace(model, partial(OpenAiEs, population=12), evaluator=evaluator)
        for _ in range(3):
            opt.step(torch.ones(9, 6), torch.arange(9) % 4, nn.functional.cross_entropy)
        return [p.tolist() for p in model.parameters()]

    inner = partial(hardstep.Batched, tile=4)
    assert train(Futures(Staged(3), 3, evaluator=inner())) == train(inner())


def bowl(x):
    return float(np.round(x, 1) @ np.round(x, 1))


def test_minimize_finds_the_same_point_with_workers():
    alone = hardstep.minimize(bowl, [3.0, -2.0], max_evals=200)
    with ThreadPoolExecutor(2) as pool:
        shared = hardstep.minimize(bowl, [3.0, -2.0], max_evals=200, workers=Futures(pool, 2))
    assert (shared.fun, shared.nfev, shared.x.tolist()) == (alone.fun, alone.nfev, alone.x.tolist())

    def sometimes(x):
        if x[0] > 3:
            raise ValueError("out of range")
        return bowl(x)

    alone = hardstep.minimize(sometimes, [3.0, -2.0], max_evals=99, on_error="worst")
    shared = hardstep.minimize(
        sometimes, [3.0, -2.0], max_evals=99, on_error="worst", workers=Futures(Staged(2), 2)
    )
    assert shared.x.tolist() == alone.x.tolist()
    assert "raised" in shared.message
    search = hardstep.AskTell(dim=2)
    search.tell(Futures(Staged(2), 2).evaluate(bowl, search.ask())[:, 0])
    assert search.evaluations > 0


def test_explain_tells_how_a_step_divides():
    opt = PolyStep(build(Spiking, 0), evaluator=Futures(Staged(2), 2), **SETTINGS)
    table = opt.explain(torch.ones(9, 6), torch.arange(9) % 4, nn.functional.cross_entropy)
    text = re.sub(r"\s+", " ", str(table))
    assert "2 workers share it" in text
    assert 0 < table.efficiency <= 1
    assert table.traffic > 8 * opt.evaluations_per_step


def test_counts_are_numbers_for_a_record():
    engine = Futures(Staged(2), 2)
    train_spiking(engine, steps=2)
    record = json.loads(json.dumps(engine.counts.as_record(2)))
    assert 16 < record["tiles"] == engine.counts.tiles <= 32
    assert 0 <= record["waiting"] <= 1
    assert engine.path.startswith("2 workers, waiting ")


class Locked(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer, self.lock = nn.Linear(2, 2), Lock()

    def forward(self, x):
        return self.layer(x)


GLOBAL = nn.Linear(2, 2)


def read_global():
    return float(GLOBAL.weight.sum())


def test_what_cannot_travel_is_refused_in_a_sentence():
    engine = Futures(Staged(1), 1)
    with pytest.raises(ConfigError, match="cannot be sent to workers"):
        PolyStep(Locked(), evaluator=engine).step(
            torch.ones(3, 2), torch.zeros(3).long(), nn.functional.cross_entropy
        )
    opt = PolyStep(GLOBAL, evaluator=engine)
    with pytest.raises(ConfigError, match="without the tensors it reads"):
        opt.step(read_global)
    with pytest.raises(ConfigError, match="must be an Executor"):
        Futures(3)
    with pytest.raises(ConfigError, match="workers evaluate points one by one"):
        hardstep.minimize(bowl, [0.0], vectorized=True, workers=engine)


def test_an_error_of_the_objective_or_the_version_is_not_tried_again():
    engine = Futures(Staged(2), 2)
    opt = PolyStep(build(Spiking, 0), evaluator=engine)
    with pytest.raises(ObjectiveError, match="one number per parameter set"):
        opt.step(torch.ones(3, 6), torch.zeros(3).long(), lambda out, y: out)
    assert engine.counts.retries == 0

    class Older(Staged):
        def submit(self, function, task):
            return super().submit(function, replace(task, step=task.step._replace(version="0.0.1")))

    with pytest.raises(WorkerError, match=r"the driver runs hardstep 0\.0\.1 and worker"):
        train_spiking(Futures(Older(2), 2))


def test_a_step_says_that_it_needs_whole_forward_passes_on_workers_too():
    """Settings of an evaluator travel."""
    run = partial(train_spiking, steps=2)
    assert run(Futures(Staged(2), 2, evaluator=Incremental(fused=False))) == run(
        Incremental(fused=False)
    )
