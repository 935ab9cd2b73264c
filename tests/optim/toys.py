"""The small models, batches and objectives that the tests of the optimizer share."""

import io
from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from hardstep.evaluation import Candidates
from hardstep.geometry import Simplex
from hardstep.optim import PolyStep, Proposal
from hardstep.schedules import Length
from hardstep.subspaces import RowWise

SHAPES = {"first.weight": (4, 3), "first.bias": (4,), "last.weight": (2, 4), "last.bias": (2,)}


def staircase(x: Tensor) -> Tensor:
    return (5 * torch.sigmoid(x)).floor() / 5


class Net(nn.Module):
    """3-4-2: 26 numbers in tensors of 12, 4, 8 and 2, so that most particles need padding."""

    def __init__(self, activation: Callable[[Tensor], Tensor] = torch.tanh, seed: int = 0) -> None:
        super().__init__()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.first, self.last = nn.Linear(3, 4), nn.Linear(4, 2)
        self.activation = activation
        self.double()

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.activation(self.first(x)))


def batch(index: int = 0, num: int = 6) -> tuple[Tensor, Tensor]:
    """Inputs (num, 3) and targets (num, 2), float64."""
    generator = torch.Generator().manual_seed(100 + index)
    both = torch.randn(num, 5, generator=generator, dtype=torch.float64)
    return both[:, :3], both[:, 3:]


def flat(tensors: Mapping[str, Tensor]) -> Tensor:
    """All tensors as one new vector, in their order."""
    return torch.cat([tensor.detach().reshape(-1) for tensor in tensors.values()])


def parameters(model: nn.Module) -> Tensor:
    """The model's parameters as one new vector."""
    return flat(dict(model.named_parameters()))


def flat_loss(theta: Tensor, x: Tensor, y: Tensor, activation=torch.tanh) -> float:
    """The loss of a `Net` with flat parameters, written without modules."""
    sizes = [torch.Size(shape).numel() for shape in SHAPES.values()]
    w, b, v, c = (
        piece.reshape(shape)
        for piece, shape in zip(torch.split(theta, sizes), SHAPES.values(), strict=True)
    )
    return float(((activation(x @ w.T + b) @ v.T + c - y) ** 2).mean())


def stacked_loss(tensors: dict[str, Tensor], x: Tensor, y: Tensor) -> Tensor:
    """The losses of stacked tensors (N, *shape), as `batched=` wants them."""
    w, b, v, c = (tensors[name] for name in SHAPES)
    hidden = torch.tanh(torch.einsum("bi,nhi->nbh", x, w) + b[:, None])
    out = torch.einsum("nbh,noh->nbo", hidden, v) + c[:, None]
    return ((out - y) ** 2).mean(dim=(1, 2))


def parameters_at(opt: PolyStep, proposal: Proposal, *index: int) -> dict[str, Tensor]:
    """The searched tensors at the probe (particle, vertex, probe)."""
    offsets = torch.zeros_like(proposal.directions[:, 0])
    offsets[index[0]] = proposal.probes[index]
    changes = opt.subspace.expand(opt.particles.to_coordinates(offsets))
    return {name: tensor.detach() + changes[name] for name, tensor in opt.tensors.items()}


mse = functional.mse_loss

TINY = {
    "polytope": Simplex(2),
    "temperature": 0.2,
    "step_radius": Length(0.5),
    "probe_radius": Length(0.6),
}


def tiny(model: nn.Module | dict[str, Tensor], **changes: Any) -> PolyStep:
    """An optimizer for a `Net` (or any few tensors) with moderate lengths."""
    return PolyStep(model, **(TINY | {"subspace": RowWise(rank=1), "seed": 7} | changes))


def constant_loss(output: Tensor, target: Tensor) -> Tensor:
    return 0 * output.sum() + 0.7


class Scripted:
    """An objective that does not look at parameters: noise that depends on the step alone.

    With rotations that ignore the past, the barycentres of two runs with the same seed are
    then the same, whatever their rules make of them.
    """

    def __init__(self, here: float = 0.0) -> None:
        self.here = here  # the loss at the parameters themselves
        self.calls: list[int] = []

    def losses(self, candidates: Candidates) -> Tensor:
        self.calls.append(len(candidates))
        if len(candidates) == 1:
            return torch.tensor([self.here], dtype=torch.float64)
        generator = torch.Generator().manual_seed(candidates.seed)
        return torch.rand(len(candidates), generator=generator, dtype=torch.float64)


def moves(positions: list[Tensor]) -> list[Tensor]:
    """Differences of consecutive positions."""
    return [after - before for before, after in pairwise(positions)]


def through_disk(state: Any) -> Any:
    """The state as `torch.load` gives it back from a file."""
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    return torch.load(file, weights_only=True)
