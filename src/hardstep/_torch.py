"""All that hardstep uses of torch's private interfaces, and what a new version of torch can break.

No other module names them; `tests/test_package.py` looks. When a new torch is out, run the tests on
it and begin here. If a name is gone, this is what stops working:

    TorchDispatchMode, tree_leaves, tree_map      the record of a forward pass, so every fast tier
    unseen, unseen_by_subclasses, undispatched    looking at tensors while a model is recorded
    one_hot                                       models that call `one_hot` fall back to batches
    storage_key, version_of                       counting memory; restoring tensors of a model
    FUSED_ENCODER_LAYER, FUSED_ATTENTION          operations of a forward pass, counted by `explain`
    Outside                                       changes that follow a forward pass as it runs
    warn_of_missing_rules                         torch's remarks on batching rules are seen again
    batch_level … list_watchers                   LIF in one pass over memory; plain torch instead

Modules' `_parameters` and `_buffers` are used in `evaluation/sandbox.py`; torch's own
`functional_call` relies on them, too.
"""

from contextlib import AbstractContextManager

import torch
from torch import Tensor
from torch._C import _functorch
from torch.autograd import forward_ad
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

__all__ = ["TorchDispatchMode", "tree_leaves", "tree_map"]

unseen = torch._C.DisableTorchFunction
unseen_by_subclasses = torch._C.DisableTorchFunctionSubclass
undispatched = torch._C._DisableTorchDispatch
one_hot = torch._C._nn.one_hot
FUSED_ENCODER_LAYER = torch.ops.aten._transformer_encoder_layer_fwd
FUSED_ATTENTION = torch.ops.aten._native_multi_head_attention
batch_level = _functorch.maybe_get_level
is_batched = _functorch.is_batchedtensor
unwrap_batched = _functorch._unwrap_batched
add_batch_axis = _functorch._add_batch_dim
warn_of_missing_rules = _functorch._set_vmap_fallback_warning_enabled  # type: ignore[attr-defined]


class Outside:
    """What torch does where this is made, to be had again inside of a dispatch mode's handler.

    A handler runs below `vmap`, which does not work there.
    """

    def __init__(self) -> None:
        self._keys = (
            torch._C._dispatch_tls_local_include_set(),
            torch._C._dispatch_tls_local_exclude_set(),
        )

    def enter(self) -> AbstractContextManager[None]:
        """A context like the one outside."""
        return torch._C._ForceDispatchKeyGuard(*self._keys)


def storage_key(storage: torch.UntypedStorage) -> int:
    """The same for every view of one storage, while it lives."""
    return int(storage._cdata)


def version_of(tensor: Tensor) -> int:
    """Grows when a tensor is written to."""
    return tensor._version


def is_watched() -> bool:
    """Whether somebody records, replaces or differentiates operations."""
    return bool(
        torch._C._len_torch_dispatch_stack()
        or torch._C._len_torch_function_stack()
        or torch._C._get_tracing_state()
        or torch.compiler.is_compiling()
        or forward_ad._current_level >= 0
    )


def list_watchers() -> list[object]:
    """What sees operations here, the last to be told first; nothing if they are traced, too."""
    if torch._C._get_tracing_state() or torch.compiler.is_compiling():
        return []
    if forward_ad._current_level >= 0:
        return []
    below = [
        torch._C._get_dispatch_stack_at(n) for n in range(torch._C._len_torch_dispatch_stack())
    ]
    above = [
        torch._C._get_function_stack_at(n) for n in range(torch._C._len_torch_function_stack())
    ]
    return [*below, *above]
