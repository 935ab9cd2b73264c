"""One step of LIF neurons in one pass over memory, where torch takes six.

Every operation of torch goes through memory, and small networks wait for its overhead. This gives
the same bits. It is for plain numbers on the CPU and for `vmap` over them. The record of a forward
pass is told of the six; whatever else watches, replaces or differentiates operations sees torch's.
"""

import ctypes
from functools import cache, lru_cache
from typing import Any

import torch
from torch import Tensor

from hardstep._threads import share_out
from hardstep._torch import (
    add_batch_axis,
    batch_level,
    is_batched,
    is_watched,
    undispatched,
    unseen,
    unwrap_batched,
)
from hardstep.evaluation.fused.compile import compile_kernel
from hardstep.evaluation.trace.layers import write_layer
from hardstep.evaluation.trace.nodes import Later, Ref
from hardstep.evaluation.trace.record import Recorder, find_recorder

_aten = torch.ops.aten

LANES = {torch.float32: 16, torch.float64: 8}
ELEMENT = {torch.float32: "float", torch.float64: "double"}
SEVERAL = 1 << 19  # numbers that are worth sharing out among threads
Stepped = tuple[Tensor, Tensor]  # spikes, next membrane


def step(
    current: Tensor, membrane: Tensor | None, decay: float, threshold: float
) -> Stepped | None:
    """Spikes and the next membrane; nothing where torch has to do it."""
    if is_watched():  # before any look at a tensor, which would be watched, too
        recorder = find_recorder()
        if recorder is None:
            return None
        with unseen(), undispatched():
            stepped = _step(current, membrane, decay, threshold)
            if stepped is not None:
                _tell(recorder, current, membrane, decay, threshold, stepped)
        return stepped
    return _step(current, membrane, decay, threshold)


def _step(
    current: Tensor, membrane: Tensor | None, decay: float, threshold: float
) -> Stepped | None:
    level = max(batch_level(t) for t in (current, membrane) if t is not None)
    if level > 0:
        return _step_batched(level, current, membrane, decay, threshold)
    if not (_is_plain(current) and _is_number(decay) and _is_number(threshold)):
        return None
    if membrane is not None:
        alike = membrane.shape == current.shape and membrane.dtype == current.dtype
        if not (alike and _is_plain(membrane)):
            return None
    spikes, after = torch.empty_like(current), torch.empty_like(current)
    _run(current, membrane, spikes, after, _constants(current.dtype, decay, threshold))
    return spikes, after


def _step_batched(
    level: int, current: Tensor, membrane: Tensor | None, decay: float, threshold: float
) -> Stepped | None:
    """Inside `vmap`: an axis more is a larger step.

    A `torch.autograd.Function` with a rule for `vmap` would take half a millisecond a call.
    """
    inner = []
    for tensor in (current, membrane):
        if tensor is None:
            continue
        if not is_batched(tensor):
            return None  # a derivative is taken, or it does not vary
        whole, axis = unwrap_batched(tensor, level)
        if axis is None:
            return None
        inner.append(whole.movedim(axis, 0).contiguous())
    stepped = _step(inner[0], inner[1] if membrane is not None else None, decay, threshold)
    if stepped is None:
        return None
    spikes, after = (add_batch_axis(result, 0, level) for result in stepped)
    return spikes, after


def _tell(
    recorder: Recorder,
    current: Tensor,
    membrane: Tensor | None,
    decay: float,
    threshold: float,
    stepped: Stepped,
) -> None:
    """Write a step down as torch's operations, of which only the last of each kind were kept."""
    shape, dtype = current.shape, current.dtype
    operands = [recorder.refer(tensor) for tensor in (current, membrane) if tensor is not None]

    def later(func: Any, *args: Any, dtype: torch.dtype = dtype) -> Ref:
        return recorder.write(func, *args, made=Later(func, args, {}, shape, dtype))

    def write() -> list[Ref]:
        spikes, after = stepped
        charged, found = operands[0], []
        if len(operands) == 2:
            leaked = later(_aten.mul.Tensor, operands[1], decay)
            charged = later(_aten.add.Tensor, leaked, charged)
            found = [leaked, charged]
        fired = later(_aten.ge.Scalar, charged, threshold, dtype=torch.bool)
        spiked = recorder.write(_aten._to_copy.default, fired, made=spikes, dtype=dtype)
        kept = later(_aten.rsub.Scalar, spiked, 1.0)
        left = recorder.write(_aten.mul.Tensor, charged, kept, made=after)
        return [*found, fired, spiked, kept, left]

    what = "LIF", repr(decay), repr(threshold), shape, dtype  # which tells zeros of a sign apart
    write_layer(recorder, what, operands, stepped, write)


def _is_number(value: object) -> bool:
    return isinstance(value, float | int)


def _is_plain(tensor: Tensor) -> bool:
    return (
        type(tensor) in (Tensor, torch.nn.Parameter)
        and tensor.dtype in LANES
        and tensor.layout is torch.strided
        and tensor.device.type == "cpu"
        and tensor.is_contiguous()
        and not (tensor.requires_grad and torch.is_grad_enabled())
        and not tensor.is_neg()
    )


@lru_cache(maxsize=256)
def _constants(dtype: torch.dtype, decay: float, threshold: float) -> Tensor:
    return torch.tensor([decay, threshold], dtype=dtype)


def _run(
    current: Tensor, membrane: Tensor | None, spikes: Tensor, after: Tensor, constants: Tensor
) -> None:
    function = compile_kernel(_text(current.dtype, membrane is None))
    tensors = (constants, current, spikes, after, current if membrane is None else membrane)
    addresses = (ctypes.c_uint64 * 5)(*(tensor.data_ptr() for tensor in tensors))
    place, num = ctypes.addressof(addresses), current.numel()
    if num < SEVERAL:
        function(place, 0, num, 0, 0, None)
    else:
        share_out(num, lambda first, last: function(place, first, last, 0, 0, None))


@cache
def _text(dtype: torch.dtype, at_rest: bool) -> str:
    """The kernel: vectors of neurons, then what is left of them one by one."""
    element, lanes = ELEMENT[dtype], LANES[dtype]
    vector, pointers = f"<{lanes} x {element}>", ""
    for slot, name in enumerate(("constants", "current", "spikes", "after", "membrane")):
        pointers += f"  %{name}.at = getelementptr ptr, ptr %tables, i64 {slot}\n"
        pointers += f"  %{name} = load ptr, ptr %{name}.at\n"
    whole = _body("v", vector, f"<{lanes} x i1>", element, at_rest)
    single = _body("s", element, "i1", element, at_rest)
    return f"""\
define void @run(ptr %tables, i64 %first, i64 %last, i64 %rows, i64 %stride, ptr %scratch) {{
entry:
{pointers}
  %decay.s = load {element}, ptr %constants
  %threshold.at = getelementptr {element}, ptr %constants, i64 1
  %threshold.s = load {element}, ptr %threshold.at
  %one.s = bitcast {element} 1.0 to {element}
{"".join(_splat(name, vector, element, lanes) for name in ("decay", "threshold", "one"))}
  br label %vectors
vectors:
  %i.v = phi i64 [ %first, %entry ], [ %next.v, %vectors_do ]
  %next.v = add i64 %i.v, {lanes}
  %fits = icmp sle i64 %next.v, %last
  br i1 %fits, label %vectors_do, label %singles
vectors_do:
{whole}
  br label %vectors
singles:
  %i.s = phi i64 [ %i.v, %vectors ], [ %next.s, %singles_do ]
  %next.s = add i64 %i.s, 1
  %left = icmp sle i64 %next.s, %last
  br i1 %left, label %singles_do, label %end
singles_do:
{single}
  br label %singles
end:
  ret void
}}
"""


def _splat(name: str, vector: str, element: str, lanes: int) -> str:
    first = f"  %{name}.f = insertelement {vector} poison, {element} %{name}.s, i64 0\n"
    mask = f"<{lanes} x i32> zeroinitializer"
    return first + f"  %{name}.v = shufflevector {vector} %{name}.f, {vector} poison, {mask}\n"


def _body(tag: str, typ: str, truth: str, element: str, at_rest: bool) -> str:
    """What is done with neurons from %i on; every operation rounds as torch's does."""
    align = {"float": 4, "double": 8}[element]
    lines = []
    for name in ("current", "spikes", "after", "membrane"):
        lines.append(f"%{name}.p{tag} = getelementptr {element}, ptr %{name}, i64 %i.{tag}")
    lines.append(f"%c.{tag} = load {typ}, ptr %current.p{tag}, align {align}")
    charged = f"%c.{tag}"
    if not at_rest:
        lines.append(f"%m.{tag} = load {typ}, ptr %membrane.p{tag}, align {align}")
        lines.append(f"%leaked.{tag} = fmul {typ} %decay.{tag}, %m.{tag}")
        lines.append(f"%charged.{tag} = fadd {typ} %leaked.{tag}, %c.{tag}")
        charged = f"%charged.{tag}"
    lines += [
        f"%fired.{tag} = fcmp oge {typ} {charged}, %threshold.{tag}",
        f"%spike.{tag} = uitofp {truth} %fired.{tag} to {typ}",
        f"%kept.{tag} = fsub {typ} %one.{tag}, %spike.{tag}",
        f"%left.{tag} = fmul {typ} {charged}, %kept.{tag}",
        f"store {typ} %spike.{tag}, ptr %spikes.p{tag}, align {align}",
        f"store {typ} %left.{tag}, ptr %after.p{tag}, align {align}",
    ]
    return "\n".join(f"  {line}" for line in lines)
