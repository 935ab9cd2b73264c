"""Every kind of subspace and of model, and the matrix a subspace stands for."""

from functools import cache

import torch
from torch import Tensor, nn

from hardstep.geometry import ParticleMap
from hardstep.subspaces import (
    Adaptive,
    BoundSubspace,
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
    trainable,
)

SUBSPACES = {
    "full": Full(),
    "rows": RowWise(1),
    "rows-rank-2": RowWise(2),
    "rows-shared": RowWise(1, basis=SharedRows()),
    "rows-whole": RowWise(None),
    "rows-in-turns": RowWise(1, redraw=1, share=0.5),
    "layers": LayerWise(1),
    "layers-rank-2": LayerWise(2),
    "global": Global(7),
    "adaptive": Adaptive(1, every=3),
    "sparse": Sparse(1),
    "lowrank": LowRank(1),
    "sketch": Sketch(RowWise(1)),
    "sketch-of-turns": Sketch(RowWise(1, redraw=2, share=0.5)),
    "scaled": Scaled(RowWise(1), 0.5),
    "per-tensor": PerTensor({"*bias*": Full(), "*": RowWise(1)}),
}
OBLIQUE = ("sparse", "lowrank", "scaled")  # whose directions are not orthonormal
LINEAR = [name for name in SUBSPACES if name != "lowrank"]
SEED = 5


class Bare(nn.Module):
    """Parameters without layers: 0-d, 1-d, 2-d not contiguous, 3-d."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.randn(()))
        self.shift = nn.Parameter(torch.randn(3))
        self.transposed = nn.Parameter(torch.randn(4, 6).T)
        self.cube = nn.Parameter(torch.randn(3, 2, 4))


class Tied(nn.Module):
    """A decoder that uses the encoder's weight."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Linear(5, 5)
        self.decoder = nn.Linear(5, 5, bias=False)
        self.decoder.weight = self.encoder.weight


def _frozen() -> nn.Module:
    model = nn.Sequential(nn.Linear(4, 5), nn.Linear(5, 4), nn.Linear(4, 3))
    model[1].requires_grad_(False)
    model[2].bias.requires_grad_(False)
    return model


def _channels_last() -> nn.Module:
    return nn.Conv2d(3, 4, 2).to(memory_format=torch.channels_last)


MODELS = {
    "linear": lambda: nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 3)),
    "one-by-one": lambda: nn.Sequential(nn.Linear(1, 1), nn.Linear(1, 4)),
    "bias-free": lambda: nn.Linear(7, 4, bias=False),
    "conv1d": lambda: nn.Conv1d(3, 4, 2),
    "conv2d": lambda: nn.Conv2d(2, 3, 2),
    "conv3d": lambda: nn.Conv3d(1, 3, 2),
    "channels-last": _channels_last,
    "embedding": lambda: nn.Sequential(nn.Embedding(7, 4), nn.Linear(4, 2)),
    "norms": lambda: nn.Sequential(nn.Linear(4, 5), nn.LayerNorm(5), nn.BatchNorm1d(5)),
    "lstm": lambda: nn.LSTM(2, 3),
    "gru": lambda: nn.GRU(2, 3, bidirectional=True),
    "attention": lambda: nn.MultiheadAttention(4, 2),
    "bare": Bare,
    "tied": Tied,
    "frozen": _frozen,
}


def made(factory, seed: int = 0):
    """What a factory makes from a seed, without touching the global generator."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return factory()


@cache
def tensors_of(model: str, dtype: torch.dtype = torch.float64) -> dict[str, Tensor]:
    """The searched tensors of a model of the catalogue."""
    return trainable(made(MODELS[model]).to(dtype))


def bound(
    subspace: str, model: str, dtype: torch.dtype = torch.float64, dim: int = 3, seed: int = SEED
) -> BoundSubspace:
    """A subspace of the catalogue on a model of the catalogue."""
    return SUBSPACES[subspace].bind(Layout(tensors_of(model, dtype)), dim, seed)


def randn(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    """Gaussian numbers of a seed."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def flat(subspace: BoundSubspace, tensors: dict[str, Tensor]) -> Tensor:
    """All tensors of a layout as one vector."""
    return torch.cat([tensors[spec.name].detach().reshape(-1) for spec in subspace.layout])


def matrix(subspace: BoundSubspace) -> Tensor:
    """Π, (N, n): what each coordinate alone does to the parameters."""
    eye = torch.eye(subspace.dim, dtype=subspace.layout.dtype)
    return torch.stack([flat(subspace, subspace.expand(unit)) for unit in eye], dim=1)


def particles_by_block(subspace: BoundSubspace, dim: int) -> list[Tensor]:
    """Per block the coordinates of its particles, (p, d_p), within the block, −1 on padding."""
    index = []
    for block in subspace.blocks:
        index.append(ParticleMap(block.group_sizes, dim).index)
    return index
