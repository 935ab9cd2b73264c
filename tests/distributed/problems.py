"""Small problems of every kind that workers share, and a hash of what a run comes to."""

import hashlib
import json
import os
import sys
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hardstep import PolyStep, RowWise, tasks
from hardstep.data import Batches, Split
from hardstep.geometry import Simplex
from hardstep.maxsat import MaxSat, random_ksat
from hardstep.nn import build
from hardstep.rl.agent import Agent, minus_return
from hardstep.rl.compiled import Classic
from hardstep.rl.policies import Policy
from hardstep.schedules import Length
from hardstep.subspaces import Full

SETTINGS = {
    "polytope": Simplex(2),
    "temperature": 0.01,
    "step_radius": Length(0.3),
    "probe_radius": Length(0.5),
}


class Spiking(nn.Module):
    """Leaky neurons over time: enough for several tiles."""

    def __init__(self) -> None:
        super().__init__()
        self.inputs, self.outputs = nn.Linear(6, 300), nn.Linear(300, 4)

    def forward(self, x: Tensor) -> Tensor:
        current, membrane, count = self.inputs(x), 0.0, 0.0
        for _ in range(4):
            membrane = 0.9 * membrane + current
            spikes = (membrane >= 0.4).to(x.dtype)
            membrane = membrane * (1 - spikes)
            count = count + spikes
        return self.outputs(count)


class Distance:
    """A user's objective, which reads the tensors of a model: a closure that can travel."""

    def __init__(self, model: nn.Module) -> None:
        self.model = model

    def __call__(self) -> float:
        total = sum(float((p.detach().round() - 2).abs().sum()) for p in self.model.parameters())
        return total + 0.1 * float(torch.rand(()))  # chance, which a step shares


def train_spiking(evaluator, steps=4, **settings):
    x = torch.randn(120, 6, generator=torch.Generator().manual_seed(0))
    y = (x[:, 0] > 0).long() + 2 * (x[:, 1] > 0).long()
    model = build(Spiking, 0)
    every = SETTINGS | {"subspace": RowWise(3)} | settings
    opt = PolyStep(model, evaluator=evaluator, seed=1, **every)
    batches = Batches(Split(x, y), 40, seed=2)
    for step in range(steps):
        opt.step(*batches.batch(step // 3, step % 3), F.cross_entropy)
    return hash_run(model, opt)


def train_policy(evaluator, steps=4):
    environment = Classic("CartPole-v1", threads=1)
    make = partial(Policy, environment.observations, environment.space, 6, normalize=True)
    agent = build(lambda: Agent(make(), environment, first=1), 0)
    far = SETTINGS | {"step_radius": Length(2.0), "probe_radius": Length(4.0)}
    opt = PolyStep(agent, evaluator=evaluator, seed=1, **far)
    for step in range(steps):
        opt.step(torch.arange(4 * step, 4 * step + 4), None, minus_return)
    return hash_run(agent, opt, agent.interactions)


def train_closure(evaluator, steps=4):
    model = build(lambda: nn.Linear(5, 4), 0)
    opt = PolyStep(model, evaluator=evaluator, seed=1, **SETTINGS)
    for _ in range(steps):
        opt.step(Distance(model))
    return hash_run(model, opt)


def train_task(name, evaluator, steps=4):
    """A built-in task on the bundled digits, as `hardstep train` would."""
    task = tasks.find(name, "digits")
    model = build(task.model, 0)
    opt = PolyStep(model, task.settings(task.steps), evaluator=evaluator, seed=1)
    batches = Batches(task.data(0).train, task.batch_size, 2)
    for step in range(steps):
        opt.step(*batches.batch(0, step), task.loss_fn)
    return hash_run(model, opt)


def train_maxsat(evaluator, steps=4):
    formula = random_ksat(600, seed=3)
    tensors = {"x": torch.randn(600, generator=torch.Generator().manual_seed(1))}
    opt = PolyStep(tensors, subspace=Full(), polytope=Simplex(2), evaluator=evaluator, seed=1)
    for _ in range(steps):
        opt.step(objective=MaxSat(formula))
    return hash_run(nn.ParameterDict(tensors), opt)


TRAIN = {"spiking": train_spiking, "policy": train_policy, "closure": train_closure}
LONG_RUN = {
    "spiking": partial(train_task, "snn"),
    "INT8": partial(train_task, "int8"),
    "convolutional": partial(train_task, "bcnn"),
    "policy": train_policy,
    "MAX-SAT": train_maxsat,
}


def hash_run(model: nn.Module, opt: PolyStep, *more: object) -> str:
    """The same for runs whose parameters and optimizer's state agree in every bit."""
    known = hashlib.sha256(repr(more).encode())
    _add(known, {"model": model.state_dict(), "optimizer": opt.state_dict()})
    return known.hexdigest()


def hash_saved(saved: dict) -> str:
    """The same of a checkpoint."""
    known = hashlib.sha256()
    _add(known, {name: saved[name] for name in ("model", "optimizer")})
    return known.hexdigest()


def _add(known, value) -> None:
    if isinstance(value, Tensor):
        known.update(f"{value.dtype}{tuple(value.shape)}".encode())
        known.update(value.detach().contiguous().numpy().tobytes())
    elif isinstance(value, dict):
        for name in sorted(value, key=str):
            known.update(str(name).encode())
            _add(known, value[name])
    elif isinstance(value, list | tuple):
        for one in value:
            _add(known, one)
    else:
        known.update(repr(value).encode())


if __name__ == "__main__":  # a rank of torchrun, or the driver of a cluster that RAY names
    from hardstep.distributed import Peers, Ray

    steps = int(os.environ.get("STEPS", "4"))
    if "RAY" in os.environ:
        engine = Ray(os.environ["RAY"], workers=2)
        while engine.workers < 2:  # both, for the test's sake; a run would begin with one
            engine.prepare()
    else:
        engine = Peers(timeout=30)
    print("met", flush=True)
    known = LONG_RUN if "LONG_RUN" in os.environ else TRAIN
    found = {name: known[name](engine, steps=steps) for name in sys.argv[1:]}
    rank, seen = getattr(engine, "rank", 0), len(engine.counts.names)
    print(json.dumps({"rank": rank, "workers": seen, **found}), flush=True)
    engine.close()
