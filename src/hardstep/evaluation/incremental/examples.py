"""Operations that treat examples apart: only the examples that changed go through them.

An example is an index of axis 0, whether or not it is one of the batch. Changed examples of all
candidates form one long batch, and the operation runs on it as it is. A sum over examples is the
base's plus what the changed examples add.
"""

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from torch import Tensor

from hardstep.evaluation.incremental.along import find_dims
from hardstep.evaluation.incremental.changes import (
    Change,
    Examples,
    Pairs,
    Stacked,
    column_to_examples,
)
from hardstep.evaluation.incremental.columns import Column, Lookup
from hardstep.evaluation.trace.nodes import Node, Ref

Env = Mapping[int, Change]
Result = tuple[Change, ...] | None
ExamplesRule = Callable[[Node, Env, Lookup, Pairs], Result]
Check = Callable[[Node, Env, Lookup, Pairs], bool]
Resize = Callable[[list[Any], int], list[Any]]


class KnowsExamples(Protocol):
    """What has to be known about an operator to carry changed examples."""

    @property
    def examples(self) -> ExamplesRule | None:
        """The changes of the results, or nothing if examples do not stay apart."""


def carry_examples(
    node: Node, env: Env, base: Lookup, pairs: Pairs, operators: Mapping[str, KnowsExamples]
) -> Result:
    """The changes of a node's results by examples, or nothing if they do not stay apart."""
    for index in node.inputs:
        change = env.get(index)
        if isinstance(change, Stacked):
            return None
        if change is not None and not _has_examples(base(index), change, pairs):
            return None
    rule = operators[node.name].examples
    return rule(node, env, base, pairs) if rule and node.func is not None else None


def _has_examples(value: Tensor, change: Change, pairs: Pairs) -> bool:
    axis_free = not isinstance(change, Column) or change.axis != 0
    return value.dim() >= 1 and value.shape[0] == pairs.num_examples and axis_free


def gather_examples(index: int, env: Env, base: Lookup, pairs: Pairs) -> Tensor:
    """The examples of a changed or unchanged value at the pairs."""
    change = env.get(index)
    if isinstance(change, Examples):
        return change.values
    if isinstance(change, Column):
        return column_to_examples(base(index), change, pairs).values
    return pairs.examples_of(base(index))


def run_apart(
    check: Check, table: int | None = None, resize: Resize = lambda args, num: args
) -> ExamplesRule:
    """The rule that runs an operation on the long batch of changed examples.

    Args:
        check: Says whether a node treats examples apart.
        table: The place of the one argument that may hold examples, where the others are shared by
            all of them whatever their shape; nothing if what is as long as the batch is one.
        resize: Puts the number of examples where a call writes it out.
    """

    def rule(node: Node, env: Env, base: Lookup, pairs: Pairs) -> Result:
        if not check(node, env, base, pairs):
            return None
        if table is not None and {node.args[table].index} != set(node.inputs) & set(env):
            return None  # a shared table changed, not the examples that go through it
        first = base(node.outputs[0])
        if first.dim() < 1 or first.shape[0] != pairs.num_examples:
            return None
        return _run(node, env, base, pairs, table is not None, resize)

    return rule


def _run(
    node: Node, env: Env, base: Lookup, pairs: Pairs, shares: bool, resize: Resize
) -> tuple[Change, ...]:
    ndim = max(base(index).dim() for index in node.inputs if index in env)

    def operand(leaf: Ref) -> Tensor:
        value = base(leaf.index)
        has_examples = value.dim() == ndim and value.shape[0] == pairs.num_examples
        if leaf.index in env or (has_examples and not shares):
            return gather_examples(leaf.index, env, base, pairs)
        return value

    args, kwargs = node.filled(operand)
    result = node.func(*resize(args, len(pairs.example)), **kwargs)
    outputs = result if isinstance(result, tuple | list) else (result,)
    return tuple(Examples(out) for out in outputs)


def along_dims(new_axes: int = 0) -> Check:
    """Whether the dimensions that a node works along leave axis 0 alone."""

    def check(node: Node, env: Env, base: Lookup, pairs: Pairs) -> bool:
        dims = find_dims(node, base, new_axes)
        return dims is not None and len(dims) > 0 and 0 not in dims

    return check


def always(node: Node, env: Env, base: Lookup, pairs: Pairs) -> bool:
    """Whatever its arguments are."""
    return True
