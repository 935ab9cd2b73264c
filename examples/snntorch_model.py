"""Plain snnTorch networks, trained without their surrogate gradients (pip install snntorch).

hardstep train examples/snntorch_model.py:leaky
hardstep train examples/snntorch_model.py:convolutional
hardstep compare examples/snntorch_model.py:leaky --methods polystep,adam --match time

The networks are written as in snnTorch's tutorials and know nothing of hardstep. Given as the twin
too, a network lets Adam use the surrogate gradient that PolyStep does without.
"""

from functools import partial

import snntorch as snn
import torch
from snntorch import surrogate
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, max_pool2d

from hardstep.data import digits
from hardstep.optim.presets import general
from hardstep.tasks import Task
from hardstep.training import Metric


class Net(nn.Module):
    """Two layers of leaky units over 15 time steps."""

    def __init__(self) -> None:
        super().__init__()
        spike_grad = surrogate.fast_sigmoid(slope=25)
        self.fc1 = nn.Linear(64, 64)
        self.lif1 = snn.Leaky(beta=0.95, spike_grad=spike_grad)
        self.fc2 = nn.Linear(64, 10)
        self.lif2 = snn.Leaky(beta=0.95, spike_grad=spike_grad)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Spikes and membranes of the last layer, each (time steps, batch, classes)."""
        mem1 = self.lif1.reset_mem()
        mem2 = self.lif2.reset_mem()
        spk2_rec = []
        mem2_rec = []
        for _ in range(15):
            cur1 = self.fc1(x)
            spk1, mem1 = self.lif1(cur1, mem1)
            cur2 = self.fc2(spk1)
            spk2, mem2 = self.lif2(cur2, mem2)
            spk2_rec.append(spk2)
            mem2_rec.append(mem2)
        return torch.stack(spk2_rec), torch.stack(mem2_rec)


class ConvNet(nn.Module):
    """Two convolutions, each with pooling and leaky units, over 10 time steps."""

    def __init__(self) -> None:
        super().__init__()
        spike_grad = surrogate.fast_sigmoid(slope=25)
        self.conv1 = nn.Conv2d(1, 8, 3, padding=1)
        self.lif1 = snn.Leaky(beta=0.9, spike_grad=spike_grad)
        self.conv2 = nn.Conv2d(8, 16, 3, padding=1)
        self.lif2 = snn.Leaky(beta=0.9, spike_grad=spike_grad)
        self.fc1 = nn.Linear(16 * 2 * 2, 10)
        self.lif3 = snn.Leaky(beta=0.9, spike_grad=spike_grad)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Spikes and membranes of the last layer, each (time steps, batch, classes)."""
        mem1 = self.lif1.reset_mem()
        mem2 = self.lif2.reset_mem()
        mem3 = self.lif3.reset_mem()
        spk3_rec = []
        mem3_rec = []
        for _ in range(10):
            cur1 = max_pool2d(self.conv1(x.view(-1, 1, 8, 8)), 2)
            spk1, mem1 = self.lif1(cur1, mem1)
            cur2 = max_pool2d(self.conv2(spk1), 2)
            spk2, mem2 = self.lif2(cur2, mem2)
            cur3 = self.fc1(spk2.flatten(1))
            spk3, mem3 = self.lif3(cur3, mem3)
            spk3_rec.append(spk3)
            mem3_rec.append(mem3)
        return torch.stack(spk3_rec), torch.stack(mem3_rec)


def count_loss(output: tuple[Tensor, Tensor], target: Tensor) -> Tensor:
    """Cross-entropy of the spike counts."""
    return cross_entropy(output[0].sum(0), target)


def count_accuracy(output: tuple[Tensor, Tensor], target: Tensor) -> Tensor:
    """How often the unit that fires most is the right one."""
    return (output[0].sum(0).argmax(1) == target).float().mean()


leaky = Task(
    "leaky",
    "snnTorch network, 64–64–10 leaky units, 15 time steps",
    data=digits,
    model=Net,
    twin=Net,
    settings=partial(general, rank=4, step_radius=0.2),
    steps=60,
    loss_fn=count_loss,
    metric=Metric("accuracy", count_accuracy, higher_is_better=True, percent=True),
)
convolutional = Task(
    "convolutional",
    "snnTorch network, two convolutions with leaky units, 10 time steps",
    data=digits,
    model=ConvNet,
    twin=ConvNet,
    settings=partial(general, rank=4, step_radius=0.2),
    steps=100,
    loss_fn=count_loss,
    metric=Metric("accuracy", count_accuracy, higher_is_better=True, percent=True),
)
