"""Models for the compiled kernels, written the way users write them.

A program is a forward function over a few layers. Widths are multiples of three, so that a
particle of three coordinates never straddles two weight rows.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn

from hardstep.evaluation import Problem
from hardstep.nn import build

from .random_models import Hand

INPUTS, CLASSES = 6, 3


def linear(outputs, inputs=INPUTS, **options):
    return nn.Linear(inputs, outputs, **options)


# -- recurrences ---------------------------------------------------------------------------


def by_hand(steps):
    """The recurrence of the issue, its readout summed over time."""

    def forward(self, x):
        m = torch.zeros(len(x), self.fc.out_features, dtype=x.dtype)
        total = 0.0
        for _ in range(steps):
            m = 0.95 * m + self.fc(x)
            s = (m >= 1).to(x.dtype)
            m = m * (1 - s)
            total = total + self.out(s)
        return total / steps

    return forward


def in_place(steps):
    def forward(self, x):
        current = self.fc(x)
        m, count = torch.zeros_like(current), torch.zeros_like(current)
        for _ in range(steps):
            m.mul_(0.9).add_(current)
            s = m >= 1
            count += s
            m.masked_fill_(s, 0.0)
        return self.out(count.div_(steps))

    return forward


def two_layers(steps):
    """Two spiking layers, coupled at every step; the second is read by its spikes."""

    def forward(self, x):
        current, a, b, count = self.fc(x), 0.0, 0.0, 0.0
        for _ in range(steps):
            a = 0.9 * a + current
            s = (a >= 0.5).to(x.dtype)
            a = a * (1 - s)
            b = 0.8 * b + self.out(s)
            t = torch.where(b >= 0.3, 1.0, 0.0).to(x.dtype)
            b = b - 0.3 * t
            count = count + t
        return count

    return forward


def refractory(self, x):
    """Neurons that rest for two steps after a spike, counted in integers."""
    current = self.fc(x)
    m, rest = torch.zeros_like(current), torch.zeros_like(current, dtype=torch.int64)
    count = torch.zeros_like(rest)
    for _ in range(5):
        m = torch.where(rest > 0, m, 0.8 * m + current)
        s = (m >= 0.7) & (rest == 0)
        m = m.masked_fill(s, 0.0)
        rest = torch.where(s, 2, (rest - 1).clamp(min=0))
        count = count + s
    return self.out(count.to(x.dtype))


def elman(self, x):
    """A recurrent network: the hidden weight meets values that it has changed before."""
    state, drive = torch.zeros(len(x), self.rec.out_features, dtype=x.dtype), self.fc(x)
    for _ in range(3):
        state = torch.tanh(drive + self.rec(state))
    return self.out(state)


# -- layers --------------------------------------------------------------------------------


def chain(activation, *names):
    def forward(self, x):
        for name in names[:-1]:
            x = activation(getattr(self, name)(x))
        return getattr(self, names[-1])(x)

    return forward


def residual(self, x):
    h = self.first(x)
    h = h + torch.relu(self.fc(h))
    h = h + self.up(torch.relu(self.down(h)))
    return self.out(h)


def quantized(self, x):
    weight = torch.round(self.fc.weight * 8).clamp(-16, 15) / 8
    return self.out(torch.relu(F.linear(torch.relu(self.first(x)), weight, self.fc.bias)))


def scaled_by_rows(self, x):
    """Weights with a scale or a mean of each row, taken from the weights in the forward pass."""
    first, fc, out = self.first.weight, self.fc.weight, self.out.weight
    scale = first.abs().amax(1, keepdim=True) / 7
    h = torch.relu(F.linear(x, (first / scale).round() * scale, self.first.bias))
    scale = fc.abs().mean(1, keepdim=True) * fc.abs().max(dim=1, keepdim=True).values
    h = torch.relu(F.linear(h, torch.sign(fc) * scale, self.fc.bias))
    standard = (out - out.mean(1, keepdim=True)) / out.std(1, keepdim=True)
    return F.linear(h, standard / out.norm(dim=1, keepdim=True), self.out.bias)


def binary(self, x):
    weight = torch.where(self.fc.weight >= 0, 1.0, -1.0).to(x.dtype)
    return self.out(torch.relu(x @ weight.T))


def normalized(self, x):
    h = self.fc(x)
    h = h - h.mean(dim=1, keepdim=True)
    h = h / ((h * h).mean(dim=1, keepdim=True) + 1e-2) ** 0.5
    return self.out(torch.relu(h * self.gain + self.shift))


def siamese(self, x):
    return self.out((self.fc(x) - self.fc(x.flip(1))).abs())


def tied(self, x):
    return self.out(torch.tanh(self.fc(x)) @ self.fc.weight)


def bias_apart(self, x):
    return self.out(torch.relu(x @ self.fc.weight.T + self.fc.bias))


def bias_unused(self, x):
    return self.out(torch.relu(x @ self.fc.weight.T))


def gated(self, x):
    """One unit that scales all the others."""
    return self.out(torch.sigmoid(self.gate(x)) * torch.relu(self.fc(x)))


def spread_unit(self, x):
    return self.out(torch.tanh(self.gate(x)).expand(-1, 9) * self.fc(x))


def squeezed(self, x):
    """A regression, its one output without an axis."""
    return self.out(torch.tanh(self.fc(x))).squeeze(-1)


def mixed_types(self, x):
    """Single and double precision and integers in one forward pass."""
    h = self.fc(x)
    wide = torch.tanh(h.double()) * 0.3
    steps = (h * 2).round().long().clamp(-3, 3)
    return self.out((wide + steps).to(x.dtype) + (h > 0.5))


# -- routing -------------------------------------------------------------------------------


def routed(self, x):
    """The best of three layers, by one-hot weights and by comparison."""
    choice = self.gate(x).argmax(dim=1, keepdim=True)
    return self.out(torch.where(choice == 0, self.fc(x), torch.where(choice == 1, x, -x)))


def experts(self, x):
    h = torch.relu(self.first(x))
    outputs = [getattr(self, f"b{n}")(torch.relu(getattr(self, f"a{n}")(h))) for n in range(3)]
    chosen = self.gate(h).argmax(dim=1)
    picked = torch.take_along_dim(torch.stack(outputs, dim=1), chosen[:, None, None], dim=1)
    return self.out(picked.squeeze(1))


def experts_by_where(self, x):
    """The same, as a chain of conditions that the experts share."""
    h = torch.relu(self.first(x))
    outputs = [getattr(self, f"b{n}")(torch.relu(getattr(self, f"a{n}")(h))) for n in range(4)]
    chosen = self.gate(h).argmax(dim=1, keepdim=True)
    left, odd = chosen < 2, chosen % 2 == 1
    a = torch.where(odd, outputs[1], outputs[0])
    b = torch.where(odd, outputs[3], outputs[2])
    return self.out(torch.where(left, a, b))


def keyed(self, x):
    h = torch.relu(self.fc(x))
    best = (h @ self.keys.t()).argmax(dim=-1)
    return self.out(h * torch.sigmoid(self.keys[best]))


def attention(self, x):
    """Soft attention over learned keys and values."""
    h = torch.tanh(self.fc(x))
    weights = torch.softmax(h @ self.keys.t(), dim=-1)
    return self.out(h + weights @ self.values)


def looked_up(self, x):
    """A table of rows, chosen by the input, also from the end."""
    index = (x[:, 0] * 3).round().long().clamp(-6, 5)
    return self.out(self.table[index] * x[:, :1])


def _experts(num):
    parts = {"first": linear(6), "gate": linear(num), "out": linear(CLASSES)}
    for n in range(num):
        parts |= {f"a{n}": linear(6), f"b{n}": linear(6)}
    return parts


def parameter(*shape):
    return nn.Parameter(torch.randn(*shape))


def _spiking(width=9):
    return {"fc": linear(width), "out": linear(CLASSES, width)}


def _deep(width=6, depth=4):
    layers = {f"l{n}": linear(width, INPUTS if n == 0 else width) for n in range(depth - 1)}
    return layers | {"out": linear(CLASSES, width)}


@dataclass(frozen=True)
class Case:
    """A program, its parts, and what no kernel takes, by kind of candidate.

    Blocks are named by their first tensor. What is not named must be fused.
    """

    forward: object
    parts: object
    loss: object = F.cross_entropy
    rows: tuple[str, ...] = ()  # row-wise
    # Three numbers at a time, and dense directions; None is not tried, as other programs cover it.
    full: tuple[str, ...] | None = ()
    layers: tuple[str, ...] | None = ()


PROGRAMS = {
    "recurrence": Case(by_hand(6), _spiking),
    "recurrence-in-place": Case(in_place(6), _spiking, layers=None),
    "spiking-pair": Case(two_layers(6), _spiking, full=None),
    "spiking-pair-30": Case(two_layers(30), _spiking, full=None, layers=None),
    "refractory": Case(refractory, _spiking, full=None),
    "elman": Case(
        elman,
        lambda: _spiking(6) | {"rec": linear(6)},
        full=None, layers=("rec.weight", "rec.bias"),
    ),
    "deep-relu": Case(chain(torch.relu, "l0", "l1", "l2", "out"), _deep),
    "residual": Case(
        residual,
        lambda: {
            "first": linear(9), "fc": linear(9, 9), "down": linear(3, 9), "up": linear(9, 3),
            "out": linear(CLASSES, 9),
        },
        full=None,
    ),
    "quantized": Case(
        quantized, lambda: {"first": linear(9), "fc": linear(6, 9), "out": linear(CLASSES)},
        layers=("fc.weight",),
    ),
    "scaled-by-rows": Case(
        scaled_by_rows, lambda: {"first": linear(9), "fc": linear(6, 9), "out": linear(CLASSES)},
        layers=None,
    ),
    "binary": Case(
        binary, lambda: _spiking() | {"fc": linear(9, bias=False)}, layers=("fc.weight",)
    ),
    "normalized": Case(
        normalized, lambda: _spiking() | {"gain": parameter(9), "shift": parameter(9)}
    ),
    "siamese": Case(siamese, _spiking, full=None),
    "tied": Case(
        tied,
        lambda: {"fc": linear(9), "out": linear(CLASSES)},
        rows=("fc.weight",), full=("fc.weight",), layers=("fc.weight",),
    ),
    "bias-apart": Case(bias_apart, _spiking, rows=("fc.weight",)),
    "bias-unused": Case(bias_unused, _spiking, full=("fc.bias",), layers=("fc.bias",)),
    "gated": Case(gated, lambda: _spiking() | {"gate": linear(1)}, full=None),
    "spread-unit": Case(
        spread_unit, lambda: _spiking() | {"gate": linear(1)}, full=None, layers=None
    ),
    "one-unit": Case(
        chain(torch.tanh, "a", "b", "out"),
        lambda: {"a": linear(1), "b": linear(1, 1), "out": linear(CLASSES, 1)},
        full=("out.weight",), layers=("out.weight",),
    ),
    "squeezed": Case(
        squeezed,
        lambda: {"fc": linear(9), "out": linear(1, 9)},
        loss=lambda o, t: F.mse_loss(o, t.to(o.dtype)),
        layers=None,
    ),
    "mixed-types": Case(mixed_types, _spiking, full=None),
    "routed": Case(
        routed, lambda: {"fc": linear(6), "gate": linear(3), "out": linear(CLASSES)}, full=None
    ),
    "experts": Case(experts, lambda: _experts(3), full=None, layers=None),
    "experts-by-where": Case(experts_by_where, lambda: _experts(4), full=None, layers=None),
    "keyed": Case(keyed, lambda: _spiking() | {"keys": parameter(4, 9)}, layers=("keys",)),
    "attention": Case(
        attention,
        lambda: _spiking() | {"keys": parameter(6, 9), "values": parameter(6, 9)},
        rows=("values",), full=None, layers=("values",),
    ),
    "looked-up": Case(
        looked_up,
        lambda: {"table": parameter(6, 9), "out": linear(CLASSES, 9)},
        layers=("table",),
    ),
    "width-37": Case(chain(torch.relu, "l0", "l1", "out"), lambda: _deep(37, 3), full=None),
    # Three numbers may straddle two rows of 130.
    "width-130": Case(chain(torch.tanh, "l0", "out"), lambda: _deep(130, 2), full=("out.weight",)),
}  # fmt: skip


def problem(name, dtype=torch.float64, batch=11, seed=0):
    """A program with weights at which its thresholds are crossed, and a batch."""
    case = PROGRAMS[name]
    model = build(lambda: Hand(case.forward, **case.parts()), seed).to(dtype)
    with torch.no_grad():
        for tensor in model.parameters():
            tensor.mul_(1.5)
    generator = torch.Generator().manual_seed(seed)
    inputs = torch.randn(batch, INPUTS, generator=generator, dtype=dtype)
    target = torch.randint(0, CLASSES, (batch,), generator=generator)
    return Problem(model, inputs, target, case.loss)
