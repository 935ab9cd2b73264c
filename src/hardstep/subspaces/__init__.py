"""Coordinates to search in, from the full space to factored low rank."""

from hardstep.subspaces.adaptive import Adaptive
from hardstep.subspaces.base import (
    Block,
    BoundSubspace,
    LinearMove,
    LocalChange,
    Subspace,
    layer_budget,
)
from hardstep.subspaces.dense import Global
from hardstep.subspaces.full import Full
from hardstep.subspaces.layerwise import LayerWise
from hardstep.subspaces.layout import Layout, TensorSpec, trainable
from hardstep.subspaces.lowrank import LowRank
from hardstep.subspaces.rowwise import HaarRows, RowWise, SharedRows
from hardstep.subspaces.sketch import Sketch
from hardstep.subspaces.sparse import Sparse
from hardstep.subspaces.together import Together

__all__ = [
    "Adaptive",
    "Block",
    "BoundSubspace",
    "Full",
    "Global",
    "HaarRows",
    "Layout",
    "LayerWise",
    "LinearMove",
    "LocalChange",
    "LowRank",
    "RowWise",
    "SharedRows",
    "Sketch",
    "Sparse",
    "Subspace",
    "TensorSpec",
    "Together",
    "layer_budget",
    "trainable",
]
