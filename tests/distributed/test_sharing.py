"""A step answers for any range of its candidates with the bits it has in the whole."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from hardstep.evaluation import (
    Batched,
    ClosureObjective,
    FunctionObjective,
    Incremental,
    ModelObjective,
    OneByOne,
    Problem,
)
from hardstep.evaluation.sharing import Unfit, cut_evenly, follow, run_alone, share
from hardstep.nn import build
from hardstep.subspaces import Full, LayerWise, RowWise
from tests.evaluation.catalogue import candidates_for
from tests.evaluation.event_networks import SpikingCnn

from .problems import Distance, Spiking


def spiking_problem():
    generator = torch.Generator().manual_seed(1)
    return Problem(
        build(Spiking, 0), torch.randn(50, 6, generator=generator), torch.arange(50) % 4,
        F.cross_entropy,
    )  # fmt: skip


def picture_problem():
    pictures = torch.randn(12, 1, 8, 8, generator=torch.Generator().manual_seed(1))
    return Problem(build(SpikingCnn, 0), pictures, torch.arange(12) % 4, F.cross_entropy)


class Branching(nn.Module):
    """Leaves torch, so that neither a record nor vmap can follow."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(6, 4)

    def forward(self, x):
        return self.layer(x) * (2.0 if float(self.layer.weight.sum()) > 0 else 1.0)


def branching_problem():
    return Problem(build(Branching, 0), torch.ones(7, 6), torch.arange(7) % 4, F.cross_entropy)


CASES = {
    "fused": (spiking_problem, RowWise(3), lambda: Incremental()),
    "fused, dense": (spiking_problem, LayerWise(4), lambda: Incremental()),
    "incremental": (spiking_problem, RowWise(3), lambda: Incremental(fused=False)),
    "straddling": (spiking_problem, Full(), lambda: Incremental()),
    "events": (picture_problem, RowWise(2), lambda: Incremental()),
    "streamed": (picture_problem, RowWise(2), lambda: Incremental(memory_budget=200_000)),
    "batched": (picture_problem, RowWise(2), lambda: Batched(tile=8)),
    "one by one": (spiking_problem, RowWise(1), lambda: OneByOne()),
    "no record": (branching_problem, RowWise(3), lambda: Incremental()),
}


def collect(objective, candidates, pieces):
    """Losses in pieces, each by a process of its own, as far as memories go."""
    opened = [share(make).open(candidates) for make in objective]
    ranges = list(cut_evenly(len(candidates), pieces))

    def answer(question):
        found = torch.full((len(candidates),), torch.nan, dtype=torch.float64)
        for i, (start, stop) in reversed(list(enumerate(ranges))):  # in another order, too
            with torch.no_grad():
                first, rows = opened[i % len(opened)].piece(question, start, stop)
            assert found[first : first + len(rows)].isnan().all()
            found[first : first + len(rows)] = rows.double()
        assert not found.isnan().any()
        return found

    return follow(share(objective[0]).ask(candidates), answer)


@pytest.fixture
def _small_tiles(monkeypatch):
    """So that a small block is cut, too."""
    monkeypatch.setattr("hardstep.evaluation.fused.bind.MIN_TILE", 30)


@pytest.mark.usefixtures("_small_tiles")
@pytest.mark.parametrize("name", CASES)
def test_pieces_have_the_bits_of_the_whole(name):
    make, subspace, evaluator = CASES[name]
    problem = make()
    candidates = candidates_for(problem.model, subspace, vertices=3, probes=2)
    whole = ModelObjective(problem, evaluator()).losses(candidates).double()
    for pieces in (2, 7, 40):
        workers = [ModelObjective(problem, evaluator()) for _ in range(3)]
        assert torch.equal(collect(workers, candidates, pieces), whole), pieces


def test_a_closure_and_a_function_answer_in_pieces():
    model = build(lambda: nn.Linear(5, 4), 0)
    candidates = candidates_for(model, vertices=3)
    function = FunctionObjective(lambda stacked: stacked["weight"].square().sum((1, 2)).double())
    for objective in (ClosureObjective(Distance(model), model), function):
        whole = objective.losses(candidates)
        assert torch.equal(run_alone(objective, candidates), whole)
        assert torch.equal(collect([objective, objective], candidates, 5), whole)


class Squares:
    """An objective that knows nothing of sharing."""

    def losses(self, candidates):
        return candidates.offsets.double().square().sum(-1).reshape(-1)


def test_any_objective_is_shared_by_whole_particles():
    candidates = candidates_for(build(lambda: nn.Linear(5, 4), 0), vertices=3)
    assert torch.equal(collect([Squares()] * 2, candidates, 4), Squares().losses(candidates))
    _, rows = share(Squares()).open(candidates).piece(None, 1, 3)
    assert len(rows) == 0  # no particle begins there


@pytest.mark.usefixtures("_small_tiles")
def test_a_tier_that_some_candidates_do_not_fit_is_left_out_everywhere(monkeypatch):
    from hardstep.evaluation.fused import Kernel, Unfusable

    right, problem = Kernel.sums, spiking_problem()
    candidates = candidates_for(problem.model, RowWise(3), vertices=3, probes=2)

    place = list(candidates.spans())[0].end - 70  # in the first block, not where it is verified

    def sums(self, candidates, tile):
        if tile.start <= place < tile.end:
            raise Unfusable("a candidate of this tile")
        return right(self, candidates, tile)

    monkeypatch.setattr(Kernel, "sums", sums)
    whole = ModelObjective(problem, Incremental()).losses(candidates).double()
    workers = [ModelObjective(problem, Incremental()) for _ in range(2)]
    assert torch.equal(collect(workers, candidates, 6), whole)
    with pytest.raises(Unfit, match="of this tile"):
        workers[0].open(candidates).piece({}, place - 100, place + 1)
