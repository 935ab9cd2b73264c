"""Models nobody wrote a rule for: random stacks of ordinary layers, loops and routings.

`draw(seed)` gives a problem; the same seed always gives the same one. Every part is plain
torch code of the kind users write, in place and out of place, with and without classes.
"""

import random

import torch
import torch.nn.functional as F
from torch import nn
from torch.func import functional_call
from torch.utils._python_dispatch import TorchDispatchMode

from hardstep.evaluation import Problem
from hardstep.nn import build

CLASSES = 4


class Hand(nn.Module):
    """A module from a function of (module, input), holding what it is given."""

    def __init__(self, function, **parts):
        super().__init__()
        self.function = function
        for name, part in parts.items():
            setattr(self, name, part)

    def forward(self, x):
        return self.function(self, x)


def lif_loop(m, x):
    current, membrane, count = m.fc(x), 0.0, 0.0
    for _ in range(m.steps):
        membrane = 0.9 * membrane + current
        spikes = (membrane >= 0.5).to(x.dtype)
        membrane = membrane * (1 - spikes)
        count = count + spikes
    return count / m.steps


def lif_in_place(m, x):
    current = m.fc(x)
    membrane, count = torch.zeros_like(current), torch.zeros_like(current)
    for _ in range(m.steps):
        membrane.mul_(0.9).add_(current)
        spikes = (membrane >= 0.5).to(x.dtype)
        membrane.mul_(1 - spikes)
        count += spikes
    return count


def spiking_pair(m, x):
    """Two spiking layers coupled at every time step."""
    current, a, b, count = m.fc(x), 0.0, 0.0, 0.0
    for _ in range(m.steps):
        a = 0.9 * a + current
        s = (a >= 0.5).to(x.dtype)
        a = a * (1 - s)
        b = 0.8 * b + m.out(s)
        t = (b >= 0.3).to(x.dtype)
        b = b - 0.3 * t
        count = count + t
    return count


def recurrent_weight(m, x):
    state = torch.zeros(len(x), m.out.out_features, dtype=x.dtype)
    drive = m.fc(x)
    for _ in range(m.steps):
        state = torch.tanh(drive + m.out(state))
    return state


def scaled_quantizer(m, x):
    """A quantizer whose scale is the whole tensor's: one row changes every row."""
    scale = m.fc.weight.abs().max() / 7
    return F.linear(x, torch.round(m.fc.weight / scale) * scale, m.fc.bias)


def row_quantizer(m, x):
    return F.linear(x, torch.round(m.fc.weight * 8).clamp(-16, 15) / 8, m.fc.bias)


def binary_weight(m, x):
    return F.linear(x, torch.where(m.fc.weight >= 0, 1.0, -1.0).to(x.dtype)) / 4


def routed(m, x):
    """Top-1 of two experts by one-hot routing."""
    choice = F.one_hot(m.gate(x).argmax(dim=1), 2).to(x.dtype)
    outputs = torch.stack([m.fc(x), m.out(x)], dim=1)
    return (choice[:, :, None] * outputs).sum(dim=1)


def keyed(m, x):
    """Argmax attention: the best key's row gates the values."""
    best = (x @ m.keys.t()).argmax(dim=-1)
    return m.fc(x) * torch.sigmoid(m.keys[best])[:, : m.fc.out_features]


def soft_attention(m, x):
    """Attention between pieces of the feature vector."""
    q, k = (layer(x).reshape(len(x), 2, -1) for layer in (m.fc, m.out))
    weights = torch.softmax(q @ k.transpose(1, 2), dim=-1)
    return (weights @ k).flatten(1)


def residual(m, x):
    return x + torch.relu(m.fc(x))


def masked(m, x):
    h = m.fc(x)
    return torch.where(h > 0.1, h, torch.zeros_like(h)) + h.clamp(max=0).abs().sqrt() * 0.1


def indexed(m, x):
    h = m.fc(x)
    return torch.cat([h[:, 1:], h[:, :1] * 2, h.max(dim=1, keepdim=True).values], dim=1)[:, :-1]


def tied(m, x):
    return torch.tanh(m.fc(x)) @ m.fc.weight


def convolved(m, x):
    image = x[:, None, None, :].expand(-1, 1, 3, -1)
    return m.pool(torch.relu(m.conv(image))).flatten(1)


def normalized_columns(m, x):
    h = m.fc(x)
    return (h - h.mean(dim=0)) / (h.var(dim=0, unbiased=False) + 1e-3).sqrt()


def sorted_features(m, x):
    return m.fc(x).sort(dim=1).values.cumsum(dim=1)


def over_features(m, x):
    """A recurrent layer that reads the features one after the other."""
    return m.recurrent(x[:, :, None])[0][:, -1]


def multihead(m, x):
    """torch's attention, features as tokens."""
    tokens = m.fc(x[:, :, None])
    mixed, _ = m.attention(tokens, tokens, tokens, need_weights=False)
    return (tokens + mixed).mean(dim=1)


def embedded(m, x):
    """A row of an embedding per example, chosen by how many features are positive."""
    return m.table((x > 0).sum(dim=1)) + m.fc(x)


def from_the_end(m, x):
    """Rows of a parameter, counted from its end."""
    return m.table[-1 - m.gate(x).argmax(dim=1)] * m.fc(x)


def experts(m, x):
    outputs = torch.stack([expert(x) for expert in m.experts], dim=-2)
    chosen = m.gate(x).argmax(dim=-1)[:, None, None]
    return torch.take_along_dim(outputs, chosen, dim=-2).squeeze(-2)


def experts_by_where(m, x):
    chosen = m.gate(x).argmax(dim=1, keepdim=True)
    result = m.experts[0](x)
    for number, expert in enumerate(m.experts):
        result = torch.where(chosen == number, expert(x), result)
    return result


def by_sign(m, x):
    """Two layers, one per kind of example."""
    return torch.where(x.sum(dim=1, keepdim=True) > 0, m.fc(x), m.out(x))


def gated(m, x):
    """One unit that scales all the others."""
    return torch.sigmoid(m.gate(x)) * m.fc(x)


def siamese(m, x):
    return (m.fc(x) - m.fc(x.flip(1))).abs()


def soft_keys(m, x):
    return torch.softmax(x @ m.keys.t(), dim=-1) @ m.values


def rms_norm(m, x):
    h = m.fc(x)
    return h / (h.pow(2).mean(dim=-1, keepdim=True) + 1e-2).sqrt() * m.gain


def counted(m, x):
    """Neurons that rest after a spike; their state is integers and truth values."""
    current = m.fc(x)
    membrane, rest = torch.zeros_like(current), torch.zeros_like(current, dtype=torch.int64)
    count = torch.zeros_like(rest)
    for _ in range(m.steps):
        membrane = torch.where(rest > 0, membrane, 0.8 * membrane + current)
        spikes = (membrane >= 0.7) & (rest == 0)
        membrane = membrane.masked_fill(spikes, 0.0)
        rest = torch.where(spikes, 2, (rest - 1).clamp(min=0))
        count += spikes
    return count.to(x.dtype)


class Stepped(torch.autograd.Function):
    """A step whose gradient somebody made up."""

    @staticmethod
    def forward(ctx, x):
        return (x > 0.2).to(x.dtype) + 0.5 * (x > -0.5).to(x.dtype)

    @staticmethod
    def backward(ctx, gradient):
        return gradient


def _parts(width, pick):
    """Name -> (module, output width) for an input width."""
    out = pick.choice([3, 5, 8])

    def linear(inputs=width, outputs=out, **options):
        return nn.Linear(inputs, outputs, **options)

    def hand(function, **parts):
        module = Hand(function, **parts)
        module.steps = pick.choice([2, 4])
        return module

    def several(num):
        return nn.ModuleList(
            nn.Sequential(linear(), nn.ReLU(), linear(out, out)) for _ in range(num)
        )

    def vector(*shape):
        return nn.Parameter(torch.randn(*shape))

    bias = pick.random() < 0.7
    return {
        "linear": lambda: (linear(bias=bias), out),
        "lif": lambda: (hand(lif_loop, fc=linear(bias=bias)), out),
        "lif-in-place": lambda: (hand(lif_in_place, fc=linear()), out),
        "spiking-pair": lambda: (hand(spiking_pair, fc=linear(), out=linear(out, 5)), 5),
        "recurrent": lambda: (hand(recurrent_weight, fc=linear(), out=linear(out, out)), out),
        "quantizer": lambda: (hand(row_quantizer, fc=linear()), out),
        "scaled-quantizer": lambda: (hand(scaled_quantizer, fc=linear()), out),
        "binary": lambda: (hand(binary_weight, fc=linear(bias=False)), out),
        "routed": lambda: (
            hand(routed, fc=linear(), out=linear(), gate=linear(outputs=2)),
            out,
        ),
        "keyed": lambda: (
            hand(keyed, fc=linear(outputs=min(out, width)),
                 keys=nn.Parameter(torch.randn(3, width))),
            min(out, width),
        ),
        "attention": lambda: (
            hand(soft_attention, fc=linear(outputs=6), out=linear(outputs=6)),
            6,
        ),
        "residual": lambda: (hand(residual, fc=linear(outputs=width)), width),
        "masked": lambda: (hand(masked, fc=linear()), out),
        "indexed": lambda: (hand(indexed, fc=linear()), out),
        "tied": lambda: (hand(tied, fc=linear(bias=False)), width),
        "convolved": lambda: (
            hand(convolved, conv=nn.Conv2d(1, 2, 3, padding=1), pool=nn.AdaptiveAvgPool2d((1, 3))),
            6,
        ),
        "column-norm": lambda: (hand(normalized_columns, fc=linear()), out),
        "sorted": lambda: (hand(sorted_features, fc=linear()), out),
        "layer-norm": lambda: (nn.Sequential(linear(), nn.LayerNorm(out)), out),
        "batch-norm": lambda: (nn.Sequential(linear(), nn.BatchNorm1d(out)), out),
        "batch-norm-eval": lambda: (nn.Sequential(linear(), nn.BatchNorm1d(out).eval()), out),
        "dropout": lambda: (nn.Sequential(linear(), nn.Dropout(0.3)), out),
        "group-norm": lambda: (nn.Sequential(linear(outputs=6), nn.GroupNorm(2, 6)), 6),
        "rms-norm": lambda: (hand(rms_norm, fc=linear(), gain=vector(out)), out),
        "lstm": lambda: (hand(over_features, recurrent=nn.LSTM(1, 3, batch_first=True)), 3),
        "gru": lambda: (hand(over_features, recurrent=nn.GRU(1, 3, batch_first=True)), 3),
        "rnn": lambda: (hand(over_features, recurrent=nn.RNN(1, 3, batch_first=True)), 3),
        "multihead": lambda: (
            hand(
                multihead, fc=linear(1, 4),
                attention=nn.MultiheadAttention(4, 2, batch_first=True),
            ),
            4,
        ),
        "embedding": lambda: (
            hand(embedded, fc=linear(), table=nn.Embedding(width + 1, out)),
            out,
        ),
        "from-the-end": lambda: (
            hand(from_the_end, fc=linear(), gate=linear(outputs=4), table=vector(5, out)),
            out,
        ),
        "experts": lambda: (
            hand(experts, gate=linear(outputs=3), experts=several(3)),
            out,
        ),
        "experts-by-where": lambda: (
            hand(experts_by_where, gate=linear(outputs=3), experts=several(3)),
            out,
        ),
        "by-sign": lambda: (hand(by_sign, fc=linear(), out=linear()), out),
        "gated": lambda: (hand(gated, fc=linear(), gate=linear(outputs=1)), out),
        "siamese": lambda: (hand(siamese, fc=linear()), out),
        "soft-keys": lambda: (hand(soft_keys, keys=vector(3, width), values=vector(3, out)), out),
        "counted": lambda: (hand(counted, fc=linear(bias=bias)), out),
        "pooled": lambda: (
            nn.Sequential(nn.Unflatten(1, (1, width)), nn.Conv1d(1, 3, 2), nn.ReLU(),
                          nn.MaxPool1d(2), nn.Flatten()),
            3 * ((width - 1) // 2),
        ),
    }  # fmt: skip


ACTIVATIONS = {
    "relu": lambda: nn.ReLU(),
    "relu-in-place": lambda: nn.ReLU(inplace=True),
    "tanh": lambda: nn.Tanh(),
    "gelu": lambda: nn.GELU(),
    "staircase": lambda: Hand(lambda m, x: torch.floor(4 * torch.sigmoid(x)) / 4),
    "round": lambda: Hand(lambda m, x: torch.round(2 * x) / 2),
    "sign": lambda: Hand(lambda m, x: torch.sign(x) + 0.1 * x.abs().clamp(0, 1)),
    "none": lambda: nn.Identity(),
    "prelu": lambda: nn.PReLU(),
    "leaky": lambda: nn.LeakyReLU(0.2),
    "clamped": lambda: nn.Hardtanh(-0.5, 1.0),
    "softmax": lambda: Hand(lambda m, x: torch.softmax(2 * x, dim=-1)),
    "surrogate": lambda: Hand(lambda m, x: Stepped.apply(x)),
}
PARTS = tuple(_parts(3, random.Random(0)))


CLASS_WEIGHTS = torch.tensor([0.6, 1.4, 0.9, 1.1])
LOSSES = {
    "cross-entropy": F.cross_entropy,
    "smoothed": lambda o, t: F.cross_entropy(o, t, label_smoothing=0.1),
    "weighted": lambda o, t: F.cross_entropy(o, t, weight=CLASS_WEIGHTS.to(o.dtype)),
    "ignoring": lambda o, t: F.cross_entropy(o, t, ignore_index=1),
    "summed": lambda o, t: F.cross_entropy(o, t, reduction="sum"),
    "mse": lambda o, t: F.mse_loss(o, F.one_hot(t, CLASSES).to(o.dtype)),
    "nll": lambda o, t: F.nll_loss(F.log_softmax(o, 1), t),
    "bce": lambda o, t: F.binary_cross_entropy_with_logits(o, F.one_hot(t, CLASSES).to(o.dtype)),
    "l1": lambda o, t: F.l1_loss(o, F.one_hot(t, CLASSES).to(o.dtype)),
    "huber": lambda o, t: F.huber_loss(o, F.one_hot(t, CLASSES).to(o.dtype)),
    "hinge": lambda o, t: torch.relu(1 + o - o.gather(1, t[:, None])).sum(dim=1).mean(),
    "own": lambda o, t: (o.gather(1, t[:, None])[:, 0] - o.logsumexp(1)).abs().mean() ** 2,
}


def draw(seed, dtype=torch.float64):
    """(problem, names of its parts): a random model, batch and loss."""
    pick = random.Random(seed)
    generator = torch.Generator().manual_seed(seed)
    names = []

    def make():
        width, layers = 6, []
        for _ in range(pick.choice([1, 2, 2, 3])):
            name, activation = pick.choice(PARTS), pick.choice(list(ACTIVATIONS))
            part, width = _parts(width, pick)[name]()
            layers += [part, ACTIVATIONS[activation]()]
            names.extend([name, activation])
        return nn.Sequential(*layers, nn.Linear(width, CLASSES))

    model = build(make, seed).to(dtype)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(2.0)
    batch = pick.choice([5, 6, 7, 8, 17])  # also as many examples as features
    inputs = torch.randn(batch, 6, generator=generator, dtype=dtype)
    target = torch.randint(0, CLASSES, (batch,), generator=generator)
    loss = pick.choice(list(LOSSES))
    names.append(loss)
    return Problem(model, inputs, target, LOSSES[loss]), names


class Rounding(TorchDispatchMode):
    """Changes floating-point results by a few units in their last place, where they were rounded.

    Short numbers (multiples of 1/1024) come from exact arithmetic on rounded values, truths and
    counts: whether 1 >= 1 is no matter of rounding. Sums are changed everywhere, by units of
    their largest entry, since base plus difference rounds like that where terms cancel; products
    where they are not short, and at half of their zeros.
    """

    def __init__(self, seed):
        super().__init__()
        self.generator = torch.Generator().manual_seed(seed)

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        if not (isinstance(result, torch.Tensor) and result.is_floating_point() and result.dim()):
            return result
        name, size = func.overloadpacket.__name__, result.abs()
        exact = (result * 1024 == (result * 1024).round()) & (size < 1024)
        if name in _SUMS:
            exact, size = torch.zeros_like(exact), size.max()
        elif name in ("mm", "addmm"):
            coin = torch.rand(result.shape, generator=self.generator) < 0.5
            exact, size = exact & ((result != 0) | coin), size.max()
        noise = torch.randn(result.shape, generator=self.generator, dtype=result.dtype)
        unit = torch.finfo(result.dtype).eps * size
        return torch.where(exact, result, result + 4 * noise * unit)


_SUMS = ("sum", "mean", "var", "cumsum", "logsumexp", "bmm", "baddbmm", "convolution")


def is_tie(problem, parameters, found, buffers):
    """Whether rounding alone moves the plain forward pass as far as the loss that was found.

    The loss of a model with thresholds may jump where a value sits within rounding of one.
    Then the plain loss jumps too when every operation rounds a little differently: to the
    found value, or past it where several values sit on a threshold at once.
    """
    reached = []
    for seed in range(200):
        with torch.no_grad(), Rounding(seed):
            output = functional_call(problem.model, (parameters, buffers), (problem.inputs,))
            reached.append(float(problem.loss_fn(output, problem.target)))
    slack = 1e-6 * (1 + abs(float(found)))
    return min(reached) - slack <= float(found) <= max(reached) + slack
