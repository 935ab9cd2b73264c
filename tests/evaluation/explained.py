"""Two layers to explain, and what may be written between them."""

import torch
import torch.nn.functional as F
from torch import nn

from hardstep import PolyStep
from hardstep.geometry import Orthoplex
from hardstep.nn import build
from hardstep.subspaces import RowWise

BATCH, INPUTS, HIDDEN, CLASSES, STEPS = 32, 20, 16, 5, 8


def a_batch(dtype=torch.float32):
    generator = torch.Generator().manual_seed(0)
    inputs = torch.rand(BATCH, INPUTS, generator=generator, dtype=dtype)
    return inputs, torch.arange(BATCH) % CLASSES


def explained(model, subspace=None, loss=F.cross_entropy, **options):
    opt = PolyStep(model, subspace=subspace or RowWise(4), polytope=Orthoplex(2), **options)
    return opt.explain(*a_batch(), loss)


class Layers(nn.Module):
    """Two layers and a function of them."""

    def __init__(self, function):
        super().__init__()
        self.function = function
        self.fc, self.out = nn.Linear(INPUTS, HIDDEN), nn.Linear(HIDDEN, CLASSES)

    def forward(self, x):
        return self.function(self, x)


def layers(function):
    return build(lambda: Layers(function), 0)


def relu(self, x):
    return self.out(torch.relu(self.fc(x)))


def atan(self, x):
    return self.out(torch.atan(self.fc(x)))


def branches(self, x):
    h = self.fc(x)
    return self.out(h if (h > 0).any() else -h)


def branches_by_value(self, x):
    h = self.fc(x)
    return self.out(torch.relu(h) * float(h.sum()))


def item(o, t):
    return F.cross_entropy(o, t).item()


def parameters_of(explanation, prefix):
    return [one for one in explanation.parameters if one.name.startswith(prefix)]
