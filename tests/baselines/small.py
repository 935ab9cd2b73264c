"""A small problem and every baseline, as all tests of baselines use them."""

from functools import partial

import torch
from torch import nn
from torch.nn.functional import cross_entropy

from hardstep import RowWise
from hardstep.baselines import (
    AdamTwin,
    CmaEs,
    Eggroll,
    InSubspace,
    MeZo,
    OpenAiEs,
    RandomSearch,
    Spsa,
)
from hardstep.data import Batches, digits
from hardstep.nn import build
from hardstep.tasks.architectures import mlp

SUBSPACE = RowWise(rank=2)
TWIN = partial(mlp, 64, 16, 10)


def net(seed=0):
    return build(TWIN, seed)


def in_subspace(method, **settings):
    def make(model, subspace=SUBSPACE, **options):
        return InSubspace(model, partial(method, **settings), subspace=subspace, **options)

    return make


def adam(model, seed=0):
    return AdamTwin(model, build(TWIN, 99), learning_rate=1e-2, seed=seed)


SEARCHERS = {
    "openai-es": in_subspace(OpenAiEs, population=8),
    "cma-es": in_subspace(CmaEs, sigma=0.1, population=8),
    "sep-cma-es": in_subspace(CmaEs, sigma=0.1, population=8, separable=True),
    "random-search": partial(RandomSearch, population=7, subspace=SUBSPACE),
    "spsa": partial(Spsa, a=1.0, subspace=SUBSPACE),
    "mezo": partial(MeZo, learning_rate=0.03, subspace=SUBSPACE),
    "eggroll": partial(Eggroll, population=8, rank=2),
}
BASELINES = {**SEARCHERS, "adam": adam}
COSTS = {name: 2 if name in ("spsa", "mezo") else 8 for name in SEARCHERS} | {"adam": 1}


def batches(seed=0):
    return Batches(digits(seed).train, 128, seed)


def steps(optimizer, num, first=0):
    """Take steps number `first` to `num` − 1 of a run."""
    stream = batches()
    return [
        optimizer.step(*stream.batch(*divmod(number, len(stream))), cross_entropy)
        for number in range(first, num)
    ]


def weights(model: nn.Module):
    return torch.cat([p.detach().reshape(-1) for p in model.parameters()])
