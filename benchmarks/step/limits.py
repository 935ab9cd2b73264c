"""How fast a step could be: operations that must be done, bytes that must move, machine peaks.

A probe changes some numbers of a forward pass and leaves the others as they were; an unchanged
number needs no work. So a sample of probes is run plainly beside the base forward pass, operation
by operation, and what differs is counted:

    matrix product, input changed    2 · outputs per changed input
    matrix product, weight changed   2 · batch · min(E, E·d_p/V + d_p·U), with E changed weights
                                     in U output units: either each probe's own product, or the
                                     products with the particle's d_p directions, shared by its V
                                     probes, and their combination; only E where the weight is
                                     rounded before use, since then directions do not add
    element-wise operation           1 per changed result (sigmoid 3, log-softmax 4)
    moves and reductions             0

Inputs with the same value in all examples are left out of the second kind: what they contribute
is one number per unit.

An operation repeated on the very same tensors (a layer applied to the same input at every time
step) needs doing once, and is counted once.

Bytes that must move: bases, parameters and the batch once, and one loss per probe. Both are lower
bounds for the model as it is written (a mixture of experts computes all its experts), and the peak
is that of a matrix product, which element-wise work cannot reach.
"""

import time
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map

from hardstep.evaluation import LossFunction
from hardstep.optim import PolyStep

SAMPLES = 16  # probes run plainly per block of coordinates
PRODUCTS = {"addmm": 1, "mm": 0}  # where the left factor stands among the arguments
COSTS = {"sigmoid": 3, "_log_softmax": 4}
FREE = frozenset(("stack", "cat", "gather", "index", "clone", "_to_copy", "nll_loss_forward"))


class Call(NamedTuple):
    """One operation of a forward pass."""

    name: str
    arguments: tuple[Any, ...]
    result: Any


class Recording(TorchDispatchMode):
    """Keeps every operation that computes something, and answers a repeated one from memory.

    Tensors are told apart by where they lie, which is safe while every argument is kept alive and
    none is written to: a model that works in place is refused.
    """

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[Call] = []
        self._known: dict[object, Any] = {}

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        name = func.overloadpacket.__name__
        if func._schema.is_mutable:
            raise ValueError(f"{name} writes to its argument; limits are counted without that")
        if func.is_view:  # lies where the tensor lies that it is a view of
            return func(*args, **(kwargs or {}))
        key = (func, repr(tree_map(_place, (args, kwargs))))
        if key not in self._known:
            self._known[key] = func(*args, **(kwargs or {}))
            if name not in FREE:
                self.calls.append(Call(name, args, self._known[key]))
        return self._known[key]


def _place(value: Any) -> Any:
    """What tells a tensor from another: its address and layout; other arguments are themselves."""
    if isinstance(value, Tensor):
        return (value.data_ptr(), tuple(value.shape), value.stride(), value.dtype)
    return value


def required(
    optimizer: PolyStep, model: nn.Module, inputs: Tensor, target: Tensor, loss_fn: LossFunction
) -> dict[str, float]:
    """Operations and bytes of one step."""

    def forward(parameters: dict[str, Tensor]) -> list[Call]:
        with torch.no_grad(), Recording() as recording:
            loss_fn(functional_call(model, parameters, (inputs,)), target)
        return recording.calls

    candidates = optimizer.candidates(optimizer.propose())
    plain = {name: tensor.detach() for name, tensor in model.named_parameters()}
    base = forward(plain)
    vertices = optimizer.evaluations_per_step // optimizer.num_particles
    dim = optimizer.settings.polytope.dim
    operations = 0.0
    for span in candidates.spans():
        chosen = torch.linspace(span.start, span.end - 1, SAMPLES).round().long().unique()
        counts = []
        for number in chosen.tolist():
            moved = plain | candidates.parameters(number)
            counts.append(_work(base, forward(moved), moved, dim, vertices))
        operations += sum(counts) / len(counts) * (span.end - span.start)
    kept = [*plain.values(), inputs, target]
    once = sum(tensor.numel() * tensor.element_size() for tensor in kept)
    losses = inputs.element_size() * len(candidates)
    return {"operations": operations, "bytes": float(once + optimizer.subspace.memory + losses)}


def _work(
    base: list[Call], moved: list[Call], parameters: dict[str, Tensor], dim: int, vertices: int
) -> float:
    """Operations that one probe cannot avoid."""
    total = 0.0
    own = {tensor.untyped_storage().data_ptr() for tensor in parameters.values()}
    for before, after in zip(base, moved, strict=True):
        if after.name not in PRODUCTS:
            total += COSTS.get(after.name, 1) * sum(_changed(before.result, after.result))
            continue
        first = PRODUCTS[after.name]
        left, right = after.arguments[first : first + 2]
        old_left, old_right = before.arguments[first : first + 2]
        total += 2 * right.shape[1] * int((left != old_left).sum())
        varies = (left != left[:1]).any(dim=0)
        weights = (right != old_right) & varies[:, None]  # (inputs, units)
        entries, units = float(weights.sum()), int(weights.any(dim=0).sum())
        if right.untyped_storage().data_ptr() in own:
            entries = min(entries, entries * dim / vertices + dim * units)
        total += 2 * left.shape[0] * entries
    return total


def _changed(before: Any, after: Any) -> Iterator[int]:
    if isinstance(after, Tensor):
        yield int((before != after).sum())


def peaks() -> dict[str, float]:
    """Operations and bytes per second of this machine, with the threads torch may use."""
    left, right = torch.randn(2, 3072, 3072)
    source, other = torch.zeros(2, 1 << 26)
    result = torch.empty_like(source)
    product = _best(lambda: torch.mm(left, right))
    addition = _best(lambda: torch.add(source, other, out=result))
    return {
        "peak_operations": 2 * 3072**3 / product,
        "peak_bytes": 3 * source.numel() * source.element_size() / addition,
    }


def _best(work: Any, repeats: int = 5) -> float:
    """Seconds of the fastest of a few runs: a peak is what nothing disturbed."""
    seconds = []
    for _ in range(repeats):
        started = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - started)
    return min(seconds)
