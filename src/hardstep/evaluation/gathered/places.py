"""Where the examples of a batch stand in a recorded value.

A model moves its examples about: to axis 1 for attention, merged with heads or tokens for a
product. The numbers of one example are still apart from those of all others, so every value
becomes (examples, *own shape), whatever the model made of it.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Size, Tensor


class Mixed(Exception):
    """Examples cannot be told apart here; the message says why."""


@dataclass(frozen=True, slots=True)
class Place:
    """An axis that is (outer, examples, inner), the inner ones running fastest."""

    axis: int
    outer: int = 1
    inner: int = 1

    @property
    def size(self) -> int:
        """What is left of the axis without the examples."""
        return self.outer * self.inner

    def own_shape(self, shape: Sequence[int]) -> list[int]:
        """The shape of one example."""
        left = [self.size] if self.size > 1 else []
        return [*shape[: self.axis], *left, *shape[self.axis + 1 :]]

    def own_dim(self, dim: int) -> int | None:
        """The dimension of one example that is this one of the value; nothing if it is gone."""
        if self.size > 1 or dim < self.axis:
            return dim
        return None if dim == self.axis else dim - 1

    def check_dim(self, dim: int, name: str) -> int:
        """The same where examples must not be mixed."""
        own = self.own_dim(dim)
        if own is None or dim == self.axis:
            raise Mixed(f"{name} works across examples")
        return own

    def lift(self, value: Tensor, num: int) -> Tensor:
        """A value as (examples, *own shape)."""
        if self.axis == 0 and self.size == 1:
            return value.contiguous()
        shape = value.shape
        parts = [*shape[: self.axis], self.outer, num, self.inner, *shape[self.axis + 1 :]]
        front = value.reshape(parts).movedim(self.axis + 1, 0)
        return front.reshape(num, *self.own_shape(shape)).contiguous()


def follow_view(old: Sequence[int], new: Sequence[int], place: Place, num: int) -> Place:
    """The place after a view: the same numbers in the same order under another shape."""
    before = Size(old[: place.axis]).numel() * place.outer
    passed, found = 1, []
    for axis, size in enumerate(new):
        outer, rest = divmod(before, passed)
        if rest == 0 and outer > 0 and size % (outer * num) == 0:
            found.append(Place(axis, outer, size // (outer * num)))
        passed *= size
    if not found:
        raise Mixed("a view cuts examples apart")
    return min(found, key=lambda one: one.size)  # a single example could stand anywhere


def strip_examples(value: Tensor, ndim: int, place: Place, num: int) -> Tensor:
    """A value that all examples share, without the axis along which they would stand."""
    axis = place.axis - (ndim - value.dim())
    if axis < 0:
        return value
    if value.shape[axis] == 1:
        return value.squeeze(axis) if place.size == 1 else value
    shape = value.shape
    if shape[axis] != place.size * num:
        raise Mixed("a value is as long as the batch in part")
    parts = [*shape[:axis], place.outer, num, place.inner, *shape[axis + 1 :]]
    apart = value.reshape(parts)
    first = apart.narrow(axis + 1, 0, 1)
    if value.stride(axis) != 0 and not bool((apart == first).all()):
        raise Mixed("a value that is no input has a number for every example")
    return first.reshape(Place(axis, place.outer, place.inner).own_shape(shape))
