"""Small models of every kind with a batch each, and the losses a plain loop finds for them."""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call

from hardstep.evaluation import Candidates, ModelObjective, Problem
from hardstep.geometry import ParticleMap
from hardstep.nn import ArgmaxAttention, HardMoE, Quantize, SpikingMLP, Staircase, TransformedLinear
from hardstep.subspaces import (
    Full,
    Global,
    LayerWise,
    Layout,
    LowRank,
    PerTensor,
    RowWise,
    Scaled,
    SharedRows,
    Sketch,
    Sparse,
    Subspace,
    trainable,
)

BATCH = 6
SUBSPACES = {
    "full": Full(),
    "rows": RowWise(2),
    "rows-shared": RowWise(1, SharedRows()),
    "rows-in-turns": RowWise(2, redraw=1, share=0.4),
    "layers": LayerWise(1),
    "global": Global(8),
    "sparse": Sparse(1),
    "lowrank": LowRank(1),
    "sketch": Sketch(RowWise(2)),
    "scaled": Scaled(RowWise(1, redraw=1, share=0.4), 0.5),
    "per-tensor": PerTensor({"*weight*": RowWise(1, redraw=1, share=0.4), "*": LayerWise(1)}),
}


class Recurrent(nn.Module):
    """The last hidden state of a recurrent layer, read out."""

    def __init__(self, kind: type[nn.Module]) -> None:
        super().__init__()
        self.recurrent = kind(2, 3, batch_first=True)
        self.readout = nn.Linear(3, 3)

    def forward(self, inputs: Tensor) -> Tensor:
        return self.readout(self.recurrent(inputs)[0][:, -1])


class Attention(nn.Module):
    """Self-attention, averaged over the sequence."""

    def __init__(self, dropout: float = 0.0) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(4, 2, dropout=dropout, batch_first=True)
        self.readout = nn.Linear(4, 3)

    def forward(self, inputs: Tensor) -> Tensor:
        mixed, _ = self.attention(inputs, inputs, inputs, need_weights=False)
        return self.readout(mixed.mean(dim=1))


class Tied(nn.Module):
    """One weight, used there and back."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Linear(3, 3)
        self.decoder = nn.Linear(3, 3)
        self.decoder.weight = self.encoder.weight

    def forward(self, inputs: Tensor) -> Tensor:
        return self.decoder(torch.tanh(self.encoder(inputs)))


class Transposed(nn.Module):
    """A parameter that is not contiguous, a scale without dimensions, a three-dimensional one."""

    def __init__(self) -> None:
        super().__init__()
        self.matrix = nn.Parameter(torch.randn(3, 4).T)
        self.scale = nn.Parameter(torch.tensor(1.5))
        self.forms = nn.Parameter(torch.randn(3, 4, 4))

    def forward(self, inputs: Tensor) -> Tensor:
        hidden = self.scale * torch.tanh(inputs @ self.matrix.T)
        return torch.einsum("bi,kij,bj->bk", hidden, self.forms, hidden)


class Recorded(nn.Module):
    """Two layers of leaky neurons over time, read from records of their spikes and membranes."""

    def __init__(self) -> None:
        super().__init__()
        self.inputs, self.outputs = nn.Linear(3, 6), nn.Linear(6, 3)

    def forward(self, inputs: Tensor) -> Tensor:
        current, membrane, readout = self.inputs(inputs), 0.0, 0.0
        spikes, readouts = [], []
        for _ in range(5):
            membrane = 0.9 * membrane + current
            fired = (membrane >= 0.5).to(inputs.dtype)
            membrane = membrane - 0.5 * fired
            readout = 0.8 * readout + self.outputs(fired)
            spikes.append((readout >= 0.2).to(inputs.dtype))
            readouts.append(readout)
        last = torch.cat([value.unsqueeze(0) for value in readouts])[-1]
        return torch.stack(spikes).sum(0) + torch.stack(readouts, dim=1).mean(1) + 0.1 * last


def _quantized() -> nn.Module:
    middle = TransformedLinear(4, 4, transform=Quantize())
    return nn.Sequential(nn.Linear(3, 4), nn.ReLU(), middle, nn.ReLU(), nn.Linear(4, 3))


def _frozen() -> nn.Module:
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 3))
    model[2].requires_grad_(False)
    return model


def _sequential(*layers: nn.Module) -> nn.Module:
    return nn.Sequential(*layers)


# How to make a model, and the shape of one example.
MODELS = {
    "mlp": (lambda: _sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 3)), (3,)),
    "conv-pool": (
        lambda: _sequential(
            nn.Conv2d(1, 3, 2), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(12, 3)
        ),
        (1, 5, 5),
    ),
    "conv1d": (lambda: _sequential(nn.Conv1d(2, 3, 2), nn.Flatten(), nn.Linear(6, 3)), (2, 3)),
    "batchnorm": (
        lambda: _sequential(
            nn.Linear(3, 4), nn.BatchNorm1d(4), nn.ReLU(), nn.Linear(4, 4), nn.BatchNorm1d(4)
        ),
        (3,),
    ),
    "batchnorm-eval": (
        lambda: _sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 3)).eval(),
        (3,),
    ),
    "layernorm": (
        lambda: _sequential(nn.Linear(3, 4), nn.LayerNorm(4), nn.Linear(4, 3, bias=False)),
        (3,),
    ),
    "lstm": (lambda: Recurrent(nn.LSTM), (4, 2)),
    "gru": (lambda: Recurrent(nn.GRU), (4, 2)),
    "attention": (Attention, (3, 4)),
    "attention-dropout": (lambda: Attention(0.4), (3, 4)),
    "dropout": (
        lambda: _sequential(
            nn.Linear(3, 6), nn.Dropout(0.5), nn.Linear(6, 6), nn.Dropout(0.3), nn.Linear(6, 3)
        ),
        (3,),
    ),
    "argmax": (lambda: _sequential(nn.Linear(3, 4), ArgmaxAttention(4, 3), nn.Linear(4, 3)), (3,)),
    "experts": (lambda: _sequential(nn.Linear(3, 4), HardMoE(4, 2), nn.Linear(4, 3)), (3,)),
    "spiking": (lambda: SpikingMLP((3, 6, 3), num_steps=6), (3,)),
    "recorded": (Recorded, (3,)),
    "quantized": (_quantized, (3,)),
    "staircase": (lambda: _sequential(nn.Linear(3, 6), Staircase(), nn.Linear(6, 3)), (3,)),
    "prelu": (lambda: _sequential(nn.Linear(3, 4), nn.PReLU(), nn.Linear(4, 3)), (3,)),
    "tied": (Tied, (3,)),
    "frozen": (_frozen, (3,)),
    "transposed": (Transposed, (3,)),
}


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def made(factory, seed: int = 0) -> nn.Module:
    """What a factory makes from a seed, without touching the global generator."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return factory()


def classify(model: nn.Module, shape: tuple[int, ...], dtype: torch.dtype) -> Problem:
    """Cross-entropy of random labels on random inputs."""
    inputs = torch.randn(BATCH, *shape, generator=generator(1), dtype=torch.float64).to(dtype)
    labels = torch.randint(0, 3, (BATCH,), generator=generator(2))
    return Problem(model.to(dtype), inputs, labels, F.cross_entropy)


class Around(nn.Module):
    """A function of one layer and of the inputs."""

    def __init__(self, function: Callable[[nn.Module, Tensor], Tensor], layer: nn.Module) -> None:
        super().__init__()
        self.function, self.layer = function, layer

    def forward(self, inputs: Tensor) -> Tensor:
        return self.function(self.layer, inputs)


def around(function: Callable[[nn.Module, Tensor], Tensor], outputs: int = 3) -> Problem:
    """Classification by a function of a layer and of inputs (6, 3)."""
    return classify(made(lambda: Around(function, nn.Linear(3, outputs))), (3,), torch.float64)


def problem_of(name: str, dtype: torch.dtype = torch.float64) -> Problem:
    """A model of the catalogue with its batch."""
    factory, shape = MODELS[name]
    return classify(made(factory), shape, dtype)


def candidates_for(
    source: nn.Module | dict[str, Tensor],
    subspace: Subspace | None = None,
    *,
    dim: int = 3,
    vertices: int = 2,
    probes: int = 1,
    asked: list[int] | None = None,
    seed: int = 7,
    scale: float = 0.5,
) -> Candidates:
    """Random probes of every particle, or of those asked about."""
    base = trainable(source)
    layout = Layout(base)
    bound = (subspace or Full()).bind(layout, dim, 0)
    particles = ParticleMap(bound.group_sizes, dim)
    chosen = torch.arange(particles.num_particles) if asked is None else torch.tensor(asked)
    shape = (len(chosen), vertices, probes, dim)
    offsets = scale * torch.randn(shape, generator=generator(3), dtype=torch.float64)
    return Candidates(base, bound, particles, chosen, offsets.to(layout.dtype), seed)


def parameter_sets(candidates: Candidates) -> list[dict[str, Tensor]]:
    """All candidates' tensors, each as the base plus the expansion of its own coordinates."""
    sets = []
    particles = candidates.particles
    for particle, per_particle in zip(candidates.asked.tolist(), candidates.offsets, strict=True):
        for offset in per_particle.reshape(-1, particles.particle_dim):
            table = torch.zeros(particles.num_particles, particles.particle_dim, dtype=offset.dtype)
            table[particle] = offset
            changes = candidates.subspace.expand(particles.to_coordinates(table))
            sets.append({n: t.detach() + changes[n] for n, t in candidates.base.items()})
    return sets


def hand_losses(candidates: Candidates, problem: Problem) -> Tensor:
    """One forward pass per candidate, written out: what every evaluator must return."""
    losses = []
    for tensors in parameter_sets(candidates):
        buffers = {name: b.clone() for name, b in problem.model.named_buffers()}
        with torch.random.fork_rng(devices=[]), torch.no_grad():
            torch.manual_seed(candidates.seed)
            output = functional_call(problem.model, (tensors, buffers), (problem.inputs,))
            losses.append(problem.loss_fn(output, problem.target))
    return torch.stack(losses)


def right_losses(candidates: Candidates, problem: Problem, evaluator) -> Tensor:
    """The losses an evaluator finds, which must be those of plain forward passes."""
    losses = ModelObjective(problem, evaluator).losses(candidates)
    torch.testing.assert_close(losses, hand_losses(candidates, problem), rtol=0, atol=1e-10)
    return losses
