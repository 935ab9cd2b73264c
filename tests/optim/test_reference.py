"""PolyStep against the looped twin in `reference.py`, which shares no arithmetic with it."""

import math

import pytest
import torch

from hardstep import seeds
from hardstep.errors import ConfigError
from hardstep.evaluation import Batched
from hardstep.geometry import Biased, Cube, Haar, Jitter, Mollifier, Orthoplex, Simplex
from hardstep.optim import PolyStep, Reach, Settings
from hardstep.schedules import Cosine, Length, PowerDecay, TimesTemperature
from hardstep.solvers import Blockwise, Greedy, Penalized, RowSoftmax, Sinkhorn, TopK
from hardstep.subspaces import (
    Adaptive,
    Full,
    Global,
    LayerWise,
    LowRank,
    PerTensor,
    RowWise,
    Scaled,
    SharedRows,
    Sketch,
    Sparse,
)

from . import reference
from .toys import Net, batch, flat, flat_loss, mse, staircase

TIGHT = {"tolerance": 1e-14, "max_iterations": 2000}
POLYTOPES = [Simplex(3), Orthoplex(3), Cube(2)]
SOLVERS = {
    "softmax": (RowSoftmax(), reference.softmax_weights),
    "greedy": (Greedy(), reference.greedy_weights),
    "top two": (TopK(2), reference.top_weights(2)),
    "penalized": (Penalized(0.05, **TIGHT), reference.transport_weights(0.05, 60)),
    "sinkhorn": (Sinkhorn(**TIGHT), reference.transport_weights(float("inf"), 60)),
    "blockwise": (Blockwise(Sinkhorn(**TIGHT)), reference.transport_weights(float("inf"), 60)),
}
SUBSPACES = {
    "full": Full(),
    "rows": RowWise(rank=1),
    "shared rows": RowWise(rank=1, basis=SharedRows()),
    "layers": LayerWise(rank=1),
    "global": Global(dim=9),
    "sparse": Sparse(rank=1),
    "adaptive": Adaptive(rank=1, every=2),
    "low rank": LowRank(rank=1),
    "sketch": Sketch(of=RowWise(rank=1)),
    "scaled": Scaled(RowWise(rank=1), 0.5),
    "per tensor": PerTensor({"*weight": RowWise(rank=1), "*": Full()}),
}
BALANCED = ("sinkhorn", "blockwise")  # one particle cannot move where columns have fixed masses
JITTER = Jitter(probe=Mollifier(0.3), step=Mollifier(0.4))


def slots(group_sizes, dim):
    """The coordinates each particle holds, −1 on padding."""
    held, start = [], 0
    for size in group_sizes:
        for first in range(start, start + size, dim):
            inside = list(range(first, min(first + dim, start + size)))
            held.append(inside + [-1] * (dim - len(inside)))
        start += size
    return held


def per_block(weights, sizes):
    """The twin of `Blockwise`: rows of one block at a time."""

    def apply(costs, temperature):
        table, start = [], 0
        for size in sizes:
            table += weights(costs[start : start + size], temperature)
            start += size
        return table

    return apply


def block_sizes(opt):
    dim = opt.settings.polytope.dim
    return [sum(-(-size // dim) for size in block.group_sizes) for block in opt.subspace.blocks]


class Twin:
    """Steps the flat parameters by the reference, next to an optimizer that steps a model."""

    def __init__(self, opt, weights, activation=torch.tanh):
        self.opt, self.weights, self.activation = opt, weights, activation
        self.particles = slots(opt.subspace.group_sizes, opt.settings.polytope.dim)
        self.move = torch.zeros(opt.subspace.dim, dtype=torch.float64)

    def _previous_move(self):
        padded = torch.cat([self.move, torch.zeros(1, dtype=torch.float64)])
        return padded[torch.tensor(self.particles)]  # −1 is the appended zero

    def step(self, at, x, y, temperature, reach):
        """The losses of step `at`, and where it should end; before the optimizer takes it."""
        opt, settings = self.opt, self.opt.settings
        unit = torch.eye(opt.subspace.dim, dtype=torch.float64)
        rotations = settings.rotation.draw(
            self._previous_move(), seeds.generator(opt.seed, "rotation", at)
        )
        probe_jitter, step_jitter = 0.0, [0.0] * len(self.particles)
        if settings.jitter.probe:
            draw = settings.jitter.probe.draw(1, seeds.generator(opt.seed, "probe jitter", at))
            probe_jitter = draw.item()
        if settings.jitter.step:
            generator = seeds.generator(opt.seed, "step jitter", at)
            step_jitter = settings.jitter.step.draw(len(self.particles), generator).tolist()
        self.move, losses = reference.step(
            base=flat(opt.tensors),
            projection=torch.stack([flat(opt.subspace.expand(e)) for e in unit], dim=1),
            particles=self.particles,
            rotations=rotations,
            vertices=settings.polytope.vertices(),
            loss=lambda theta: flat_loss(theta, x, y, self.activation),
            weights=self.weights,
            temperature=temperature,
            reach=reach,
            probe_jitter=probe_jitter,
            step_jitter=step_jitter,
        )
        # Not projection @ move: the low-rank map is bilinear, and this is exact for all others.
        return losses, flat(opt.tensors) + flat(opt.subspace.expand(self.move))


def check_step(opt, twin, at, temperature, reach):
    """Take one step with both and compare losses and parameters."""
    x, y = batch(at)
    before = flat(opt.tensors)
    expected_losses, expected = twin.step(at, x, y, temperature, reach)
    proposal = opt.propose()
    losses = opt.evaluate(proposal, x, y, mse)
    torch.testing.assert_close(losses, expected_losses, rtol=0, atol=1e-10)
    opt.advance(proposal, losses)
    torch.testing.assert_close(flat(opt.tensors), expected, rtol=0, atol=1e-10)
    assert (expected - before).norm() > 1e-3  # the comparison is not one of two standstills


# Any two choices of any two parts meet in one of these.
PAIRWISE = [
    (subspace, solver, POLYTOPES[(i + j) % 3], 1 + (i + j // 3) % 2, (i // 2 + j) % 2 == 1)
    for i, subspace in enumerate(SUBSPACES)
    for j, solver in enumerate(SOLVERS)
    if not (subspace == "sketch" and solver in BALANCED)
]


@pytest.mark.parametrize(
    ("subspace", "solver", "polytope", "num_probes", "jittered"), PAIRWISE, ids=str
)
def test_a_step_equals_its_looped_twin(subspace, solver, polytope, num_probes, jittered):
    chosen, weights = SOLVERS[solver]
    opt = PolyStep(
        Net(),
        subspace=SUBSPACES[subspace],
        solver=chosen,
        polytope=polytope,
        temperature=0.2,
        step_radius=Length(0.7),
        probe_radius=TimesTemperature(4.0),
        num_probes=num_probes,
        jitter=JITTER if jittered else Jitter(),
        seed=3,
    )
    if solver == "blockwise":
        weights = per_block(weights, block_sizes(opt))
    check_step(opt, Twin(opt, weights), 0, 0.2, Reach(0.7, 0.8, num_probes))


@pytest.mark.parametrize("solver", BALANCED)
def test_a_sketch_with_columns_of_fixed_masses_is_refused(solver):
    with pytest.raises(ConfigError, match="would stand still, got .*Sinkhorn"):
        Settings(subspace=SUBSPACES["sketch"], solver=SOLVERS[solver][0])


LONGER = {
    "scheduled softmax on a staircase": ("softmax", RowWise(rank=1), Haar(), staircase),
    "rotations biased along the last move": ("softmax", LayerWise(rank=1), Biased(), torch.tanh),
    "warm sinkhorn while the basis is redrawn": ("sinkhorn", Adaptive(1, 2), Haar(), torch.tanh),
    "warm blocks": ("blockwise", RowWise(rank=1), Haar(), torch.tanh),
    "factors that move": ("greedy", LowRank(rank=1), Biased(), torch.tanh),
}


@pytest.mark.parametrize("evaluator", [None, Batched()], ids=["default", "batched"])
@pytest.mark.parametrize("run", LONGER)
def test_six_steps_equal_their_looped_twins(run, evaluator):
    solver, subspace, rotation, activation = LONGER[run]
    chosen, weights = SOLVERS[solver]
    temperature, steps = Cosine(0.5, 0.2, steps=6), PowerDecay(0.7, 0.6)
    opt = PolyStep(
        Net(activation),
        evaluator=evaluator,
        subspace=subspace,
        solver=chosen,
        rotation=rotation,
        polytope=Simplex(3),
        temperature=temperature,
        step_radius=Length(steps),
        probe_radius=TimesTemperature(2.0),
        num_probes=2,
        jitter=JITTER,
        seed=5,
    )
    if solver == "blockwise":
        weights = per_block(weights, block_sizes(opt))
    twin = Twin(opt, weights, activation)
    for at in range(6):
        reach = Reach(0.7 * (at + 1) ** -0.6, 2.0 * temperature(at), 2)
        check_step(opt, twin, at, temperature(at), reach)
        if isinstance(subspace, Adaptive) and at % 2:
            twin.move = torch.zeros_like(twin.move)  # a redraw makes it forget


def test_the_twin_moves_to_a_barycentre_worked_out_by_hand():
    # One particle in the plane on the loss θ₁, Π = I: costs are the probes' first coordinates.
    vertices = torch.tensor([[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0], [0.0, -1.0]]).double()
    move, losses = reference.step(
        base=torch.tensor([5.0, 7.0]).double(),
        projection=torch.eye(2).double(),
        particles=[[0, 1]],
        rotations=torch.eye(2).double()[None],
        vertices=vertices,
        loss=lambda theta: float(theta[0]),
        weights=reference.softmax_weights,
        temperature=0.5,
        reach=Reach(step_radius=3.0, probe_radius=2.0, num_probes=1),
        probe_jitter=0.5,
        step_jitter=[-0.5],
    )
    # Probes sit at half of 2·(1 + ½): losses 5 ± 1.5, 5, 5. The step reaches 3·(1 − ½).
    assert losses.flatten().tolist() == [6.5, 3.5, 5.0, 5.0]
    up, down = math.exp(-3), math.exp(3)
    assert move.tolist() == pytest.approx([1.5 * (up - down) / (up + down + 2), 0], abs=1e-14)
