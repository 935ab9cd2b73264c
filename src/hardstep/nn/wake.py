"""`wake`: scale the layers of a network whose hard units never fire, until they do.

A unit is awake if the next layer sees another value of it for some examples than for most. One
that never fires is not, nor is one that always does: the loss is flat in its weights and in those
before it, and probes find nothing. If a layer of the network is nearly silent, layers are visited
in the order of execution. Where too few of a layer's units are awake, its weight and bias are
multiplied by one factor, the nearest to 1 that wakes enough of them. Should none do, its bias is
first shifted so that every unit has mean zero.

Which layer comes next is found out by trial: it is the first one that noise in place of a layer's
output reaches. The last layer is judged by what the model returns.
"""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from hardstep import seeds
from hardstep._checks import check_share
from hardstep._torch import tree_leaves
from hardstep.errors import ConfigError
from hardstep.evaluation import call_model, isolate
from hardstep.evaluation.sandbox import keep, reseed

# The nearest to 1 first; half of an octave is fine enough for a threshold, 2^12 far enough.
FACTORS = tuple(2.0 ** (sign * k / 2) for k in range(1, 25) for sign in (1, -1))
NOISE = 1e3  # times the largest output of a layer: no threshold overlooks it
SILENT = 0.05  # a layer with a smaller share of units awake needs waking
RARE = 0.05  # a unit that has its usual value in all but this share of examples is not awake


class Woken(NamedTuple):
    """What was done to a layer."""

    layer: str
    before: float  # share of its units that were awake
    after: float
    factor: float = 1.0  # on weight and bias
    shifted: bool = False  # whether the bias was shifted first


@dataclass(frozen=True)
class WakeReport:
    """A line per layer, in the order of execution; print it."""

    layers: tuple[Woken, ...]

    def __str__(self) -> str:
        width = max(len("layer"), *(len(woken.layer) for woken in self.layers))
        lines = [f"{'layer':<{width}}  {'awake before':>12}  {'after':>5}  what was done"]
        for layer, before, after, factor, shifted in self.layers:
            done = "nothing" if factor == 1 else f"scaled by {factor:.3g}"
            done = f"bias shifted, {done}" if shifted else done
            lines.append(f"{layer:<{width}}  {before:>12.0%}  {after:>5.0%}  {done}")
        return "\n".join(lines)


@torch.no_grad()
def wake(model: nn.Module, inputs: Any, target: float = 0.5) -> WakeReport:
    """Scale layers in place until a share of their units is awake.

    Takes forward passes only, and no random number of the caller's. A network of which no layer
    is nearly silent is left alone. Nothing of the model changes but weights and biases of layers:
    modules with a trainable `weight` of at least two dimensions, such as linear ones and
    convolutions.

    Args:
        model: Any module.
        inputs: A batch, as `PolyStep.step` takes it; a hundred examples are enough.
        target: The share of units of every layer that should be awake.

    Returns:
        What was awake before and after, and by what each layer was scaled.

    Raises:
        ConfigError: The model has no such layer, or the target is no share.
    """
    if not isinstance(model, nn.Module):
        raise ConfigError(f"wake: model must be a module, got a {type(model).__name__}")
    check_share("wake: target", target)
    trial = _Trial(model, inputs, _find_layers(model))
    order = [name for name in trial.run().activity if name in trial.layers]
    if not order:
        raise ConfigError("wake: the model calls no layer with a trainable weight to scale")
    places = {name: trial.find_places(name) for name in order}
    seen = trial.run()
    shares = {name: seen.awake(places[name]) for name in order}
    if min(shares.values()) >= min(SILENT, target):
        return WakeReport(tuple(Woken(name, share, share) for name, share in shares.items()))
    woken = [_wake_layer(trial, name, places[name], target) for name in order]
    return WakeReport(tuple(layer._replace(before=shares[layer.layer]) for layer in woken))


def _find_layers(model: nn.Module) -> dict[str, nn.Module]:
    """Modules with a weight to scale; of those that share one, the first."""
    found, seen = {}, set()
    for name, module in model.named_modules():
        weight = module._parameters.get("weight")
        if weight is None or is_lazy(weight) or not weight.requires_grad or weight.dim() < 2:
            continue
        if id(weight) not in seen:
            found[name or type(module).__name__] = module
        seen.add(id(weight))
    return found


def _wake_layer(trial: "_Trial", name: str, places: list[str], target: float) -> Woken:
    """Try factors, then factors on a centered bias; the best one stays if none is enough."""
    before = trial.run().awake(places)  # layers in front of it may have woken its units already
    best = Woken(name, before, before)
    if before >= target or not places:
        return best
    values = trial.read(name)
    kept = values
    for shifted in (False, True):
        start = trial.center(name, values) if shifted else values
        for factor in FACTORS if start else ():
            trial.write(name, start, factor)
            after = trial.run().awake(places)
            if after > best.after:
                best, kept = Woken(name, before, after, factor, shifted), start
            if after >= target:
                return best
        trial.write(name, values)
    trial.write(name, kept, best.factor)
    return best


@dataclass
class _Seen:
    """What a forward pass showed, by layer; what the model returned is `output 0` and so on."""

    activity: dict[str, Tensor] = field(default_factory=dict)  # of what a layer receives, by unit
    digests: dict[str, list[tuple[float, float]]] = field(default_factory=dict)  # tell values apart
    means: dict[str, list[Tensor]] = field(default_factory=dict)  # of what a layer returns, by unit

    def receive(self, name: str, values: Any, axis: int) -> None:
        """Note how often units differ from their usual value; several calls may do so."""
        if not isinstance(values, Tensor) or values.dim() < -axis or not values.numel():
            return
        table = values.movedim(axis, -1).flatten(0, -2).double()
        differs = (table != table.median(dim=0).values).double().mean(dim=0)
        known = self.activity.get(name)
        if known is not None and known.shape == differs.shape:
            differs = torch.maximum(known, differs)
        self.activity[name] = differs
        digest = (float(table.sum()), float(table.square().sum()))
        self.digests.setdefault(name, []).append(digest)

    def awake(self, places: list[str]) -> float:
        """The share of units awake, in the place where it is least."""
        shares = [float((self.activity[place] >= RARE).double().mean()) for place in places]
        return min(shares, default=1.0)


@dataclass(frozen=True)
class _Trial:
    """Forward passes that leave no trace, watched."""

    model: nn.Module
    inputs: Any
    layers: Mapping[str, nn.Module]

    def run(self, noisy: str | None = None) -> _Seen:
        """One forward pass, with noise in place of a layer's output if one is named."""
        seen = _Seen()
        with ExitStack() as stack:
            stack.enter_context(isolate(self.model))
            tensors = [*self.model.parameters(), *self.model.buffers()]
            stack.enter_context(keep(tensors))
            for name, layer in self.layers.items():
                stack.enter_context(_watch(seen, name, layer, noisy == name))
            reseed(0)
            output = call_model(self.model, self.inputs)
        for number, leaf in enumerate(tree_leaves(output)):
            if isinstance(leaf, Tensor) and leaf.dim() > 1:
                seen.receive(f"output {number}", leaf, -1)
        return seen

    def find_places(self, name: str) -> list[str]:
        """Where units of a layer are seen: by the next layer, or else in what is returned."""
        plain, noisy = self.run().digests, self.run(noisy=name).digests
        reached = [place for place in plain if noisy.get(place) != plain[place]]
        layers = [place for place in reached if place in self.layers and place != name]
        return layers[:1] or [place for place in reached if place not in self.layers]

    def read(self, name: str) -> dict[str, Tensor]:
        """Copies of a layer's weight and bias."""
        own = self.layers[name]._parameters
        found = {key: own.get(key) for key in ("weight", "bias")}
        return {key: tensor.detach().clone() for key, tensor in found.items() if tensor is not None}

    def write(self, name: str, values: Mapping[str, Tensor], factor: float = 1.0) -> None:
        """Set them to values, times a factor."""
        for key, value in values.items():
            self.layers[name]._parameters[key].copy_(value * factor)  # type: ignore[union-attr]

    def center(self, name: str, values: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Values whose bias takes every unit's mean away; nothing if there is no bias for it."""
        means = self.run().means.get(name, [])
        bias = values.get("bias")
        if bias is None or not means or means[0].shape != bias.shape:
            return {}
        return {**values, "bias": bias - torch.stack(means).mean(dim=0).to(bias)}


@contextmanager
def _watch(seen: _Seen, name: str, layer: nn.Module, noisy: bool) -> Iterator[None]:
    """Note what a layer receives and returns, or let it return noise."""
    weight = layer._parameters["weight"]
    assert weight is not None
    axis = 1 - weight.dim()  # of units: the last, or the one before the axes of a picture

    def before(module: nn.Module, args: tuple[Any, ...]) -> None:
        seen.receive(name, args[0] if args else None, axis)

    def after(module: nn.Module, args: tuple[Any, ...], output: Any) -> Any:
        if not isinstance(output, Tensor) or output.dim() < -axis:
            return None
        table = output.movedim(axis, -1).flatten(0, -2)
        seen.means.setdefault(name, []).append(table.double().mean(dim=0))
        if not noisy:
            return None
        noise = torch.randn(output.shape, generator=seeds.generator(0, "wake"))
        return noise.to(output) * NOISE * (1 + output.abs().max())

    handles = [layer.register_forward_pre_hook(before), layer.register_forward_hook(after)]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
