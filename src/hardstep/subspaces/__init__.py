"""Coordinates to search in, from the full space to factored low rank."""

from hardstep.subspaces.adaptive import Adaptive
from hardstep.subspaces.base import (
    Block,
    BlockMap,
    BoundSubspace,
    IdentityMap,
    LinearMove,
    LocalChange,
    Subspace,
)
from hardstep.subspaces.bases import HaarRows, SharedRows
from hardstep.subspaces.full import Full
from hardstep.subspaces.layerwise import Global, LayerWise, Sparse
from hardstep.subspaces.layout import Layout, TensorSpec, layer_budget, trainable
from hardstep.subspaces.lowrank import LowRank
from hardstep.subspaces.pertensor import PerTensor
from hardstep.subspaces.rowwise import RowWise
from hardstep.subspaces.scaled import Scaled
from hardstep.subspaces.sketch import JointSubspace, Sketch

__all__ = [
    "Adaptive",
    "Block",
    "BlockMap",
    "BoundSubspace",
    "Full",
    "Global",
    "HaarRows",
    "IdentityMap",
    "JointSubspace",
    "Layout",
    "LayerWise",
    "LinearMove",
    "LocalChange",
    "LowRank",
    "PerTensor",
    "RowWise",
    "Scaled",
    "SharedRows",
    "Sketch",
    "Sparse",
    "Subspace",
    "TensorSpec",
    "layer_budget",
    "trainable",
]
