"""Where the benchmark says that the time of a step goes."""

import torch
from benchmarks.step import profile
from torch import nn

from hardstep.optim import PolyStep
from hardstep.subspaces import RowWise


def test_every_part_of_a_step_is_timed():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 3))
    optimizer = PolyStep(model, subspace=RowWise(rank=1), seed=0)
    data = torch.randn(8, 6), torch.randint(3, (8,)), nn.CrossEntropyLoss()
    with profile.timed_parts() as spent:
        optimizer.step(*data)
    assert set(spent) == set(profile.PARTS)
    assert min(spent.values()) > 0
