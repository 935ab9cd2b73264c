"""What the operations on examples of many candidates are given.

Two axes lead every value of examples. Where nearly everything changes they are (candidates,
examples), and what no candidate changes is (1, examples). Where few examples change they are
(1, pairs) of a candidate and an example.
"""

from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import replace

import torch
from torch import Tensor

from hardstep.evaluation.gathered.deferred import Deferred
from hardstep.evaluation.gathered.lifts import Lifts, Pairs
from hardstep.evaluation.gathered.outer import Outer
from hardstep.evaluation.gathered.places import Mixed, Place, strip_examples
from hardstep.evaluation.gathered.scene import Cut
from hardstep.evaluation.incremental.changes import Change, stack
from hardstep.evaluation.incremental.columns import Column, slices_of


class Reader:
    """The arguments of a node, for a tile of candidates.

    Args:
        lifts: Base values.
        num: Candidates.
        pairs: Those of them and of their examples that change; nothing if all do.
    """

    def __init__(self, lifts: Lifts, num: int, pairs: Pairs | None) -> None:
        self.scene, self.lifts, self.num, self.pairs = lifts.scene, lifts, num, pairs
        self.env: dict[int, Tensor | Change | Outer | Deferred] = {}  # tensors are of examples
        self.cuts: dict[int, Cut] = {}  # what there is of the values in `env`
        self.asked: Mapping[int, Cut] = {}  # what the next node needs of its arguments
        self.out: Cut | None = None  # and of its result
        self.spread: Container[int] = ()  # values that are multiplied by matrices
        self.largest = 0  # bytes of a value of one candidate that was kept
        self.adds_later = False  # whether a pass may add the bias of the next product
        self.find: Callable[[int], Tensor | None] = lambda _: None  # a result of the next node
        self.fresh: set[int] = set()  # values that were made in memory of their own
        self._gathered: dict[int, Tensor] = {}

    @property
    def lead(self) -> tuple[int, int]:
        """The sizes of the two leading axes."""
        if self.pairs is None:
            return self.num, self.scene.num
        return 1, len(self.pairs.example)

    def widen(self, value: Tensor) -> Tensor:
        """A value of examples for every candidate, though it may be the same for all."""
        return value.expand(*self.lead, *value.shape[2:])

    def own_shape(self, index: int) -> list[int]:
        """The shape of what is needed of an example of the result."""
        shape = self.scene.shape(index)
        if self.out is not None:
            shape[self.out.dim] = self.out.length
        return shape

    def has_examples(self, index: int) -> bool:
        """Whether a value has examples."""
        return self.scene.places[index] is not None

    def is_changed(self, index: int) -> bool:
        """Whether candidates change a value."""
        return index in self.env

    def column(self, index: int) -> Column | None:
        """The changed column of a value, if that is all that changes."""
        found = self.env.get(index)
        return found if isinstance(found, Column) else None

    def outer(self, index: int) -> Outer | None:
        """A value as an outer product, if it is one and is needed as it is."""
        found = self.env.get(index)
        fits = self.asked.get(index) == self.cuts.get(index)
        return found if isinstance(found, Outer) and fits else None

    def deferred(self, index: int) -> Deferred | None:
        """What is needed of a value, if it is a product that is left undone."""
        found, have, want = self.env.get(index), self.cuts.get(index), self.asked.get(index)
        if not isinstance(found, Deferred) or have == want:
            return found if isinstance(found, Deferred) else None
        if want is None or (have is not None and have.dim != want.dim):
            raise AssertionError("a part is asked for that was not kept")
        return found.narrow(want.dim, want.start - (have.start if have else 0), want.length)

    def as_outer(self, index: int) -> Outer | None:
        """A recorded value with terms added; a changed unit is such a value, too."""
        if self.pairs is not None or self.asked or self.out:
            return None
        outer, column = self.outer(index), self.column(index)
        if outer is not None and outer.is_recorded:
            return outer
        if column is None or not self.is_unit(index, column):
            return None
        delta = self.delta(index, column).unsqueeze(-1)
        return Outer(self.base(index), ((delta, self.mark(index)),))

    def unchanged(self, index: int) -> Outer:
        """A value that no candidate changes, as one without terms."""
        return Outer(self.base(index), ())

    def put(self, index: int, value: Tensor | Outer | Deferred, cut: Cut | None) -> None:
        """Keep a result, or the part of it that was computed."""
        self.env[index] = value
        self.largest = max(self.largest, value.nbytes // self.lead[0])
        self.cuts.pop(index, None)
        if cut is not None:
            self.cuts[index] = cut

    def shares(self, index: int, value: Tensor) -> bool:
        """Whether a tensor has the memory of a changed value."""
        found = self._find_numbers(index)
        if found is None:
            return False
        return found.untyped_storage().data_ptr() == value.untyped_storage().data_ptr()

    def is_alone(self, index: int) -> bool:
        """Whether a value has memory of its own, which no other value uses."""
        found = self._find_numbers(index)
        if index not in self.fresh or found is None:
            return False
        return not any(self.shares(other, found) for other in self.env if other != index)

    def _find_numbers(self, index: int) -> Tensor | None:
        """Where the numbers of a changed value are."""
        found = self.env.get(index)
        found = found.base if isinstance(found, Outer) else found
        found = found.rows if isinstance(found, Deferred) else found
        return found if isinstance(found, Tensor) else None

    def pass_on(self, index: int, inputs: Iterable[int]) -> None:
        """A value is alone in its memory if it has that of one which was."""
        found = self._find_numbers(index)
        if found is not None and any(i in self.fresh and self.shares(i, found) for i in inputs):
            self.fresh.add(index)

    def build_all(self) -> None:
        """Nothing is left as the factors of a product."""
        for index, value in self.env.items():
            if isinstance(value, Outer | Deferred):
                self.env[index] = value.build()

    # -- values --------------------------------------------------------------------------------

    def read(self, index: int) -> Tensor:
        """A value of examples: (lead, *own shape), the first of the leading axes may be 1."""
        found = self.env.get(index)
        own = self.deferred(index)
        if own is not None and own is not found:
            return own.build()  # of a part, as often as it is read
        if isinstance(found, Outer | Deferred):
            found = self.env[index] = found.build()
        if isinstance(found, Tensor):
            return self._cut(found, index, self.cuts.get(index), 2)
        if found is None:
            return self.base(index)
        if isinstance(found, Column):
            return self._cut(self._fill_in(index, found), index, None, 2)
        raise Mixed("a value of examples is changed as a whole")

    def read_whole(self, index: int) -> Tensor:
        """All of a value of examples, whatever the last node asked for."""
        self.asked = {}
        return self.read(index)

    def base(self, index: int) -> Tensor:
        """The base's value of examples: (1, examples or pairs, *own shape)."""
        if self.pairs is None:
            return self._cut(self.lifts.of(index).unsqueeze(0), index, None, 2)
        if index not in self._gathered or index in self.asked:
            lifted = self._cut(self.lifts.of(index), index, None, 1)
            found = lifted.index_select(0, self.pairs.example).unsqueeze(0)
            if index in self.asked:
                return found
            self._gathered[index] = found
        return self._gathered[index]

    def forget(self, index: int) -> None:
        """Drop what is not read any more."""
        self.env.pop(index, None)
        self._gathered.pop(index, None)

    def per_candidate(self, index: int) -> Tensor:
        """A value without examples that candidates change: (lead, *shape), either may be 1."""
        return self.by_candidate(self._stack(index))

    def _stack(self, index: int) -> Tensor:
        change = self.env[index]
        assert not isinstance(change, Tensor | Outer | Deferred)
        return stack(self.scene.base(index), change, self.num, None).values

    def by_candidate(self, values: Tensor) -> Tensor:
        """Something for each candidate, (n, …), with the leading axes."""
        if self.pairs is None:
            return values.unsqueeze(1)
        return values.index_select(0, self.pairs.candidate).unsqueeze(0)

    def pick_unit(self, values: Tensor, unit: Tensor, dim: int) -> Tensor:
        """The base's numbers (1, …) at each candidate's unit: (lead, … without the dimension)."""
        front = values[0].movedim(dim, 0)
        if self.pairs is None:
            return front[unit]
        chosen = unit[self.pairs.candidate]
        return front[chosen, torch.arange(len(chosen), device=unit.device)].unsqueeze(0)

    def align(self, index: int, ndim: int, place: Place) -> Tensor:
        """Any argument, to be broadcast with examples of a value of so many dimensions."""
        own = self.scene.places[index]
        if own is not None:
            value = self.read(index)
            lacking = len(place.own_shape([2] * ndim)) + 2 - value.dim()
            return value.reshape(*value.shape[:2], *[1] * lacking, *value.shape[2:])
        value = self.scene.base(index)
        if not self.is_changed(index):
            if value.dim() == 0:
                return value
            return self._cut(strip_examples(value, ndim, place, self.scene.num), index, None, 0)
        stacked = self._stack(index)
        if place.axis >= ndim - value.dim():
            stacked = strip_examples(
                stacked, ndim + 1, replace(place, axis=place.axis + 1), self.scene.num
            )
        value = self._cut(self.by_candidate(stacked), index, None, 2)
        lacking = len(place.own_shape([2] * ndim)) + 2 - value.dim()
        return value.reshape(*value.shape[:2], *[1] * lacking, *value.shape[2:])

    def total(self, each: Tensor) -> Tensor:
        """Numbers (lead) of examples, added up for each candidate."""
        if self.pairs is None:
            return each.expand(self.lead).sum(dim=1)
        total = each.new_zeros(self.num)
        return total.index_add_(0, self.pairs.candidate, each.reshape(-1))

    def delta(self, index: int, column: Column) -> Tensor:
        """What a column adds to the base: (lead, *own shape without its dimension)."""
        change = column.slices - slices_of(self.scene.base(index), column.axis, column.unit)
        # What is broadcast with it takes the order of its numbers, which must not be a strange one.
        found = self.pick(self._lift_slices(index, column.axis, change)).contiguous()
        want = self.asked.get(index)
        if want is None:
            return found
        dim = want.dim - (self.dim_of(index, column) < want.dim)
        return found.narrow(2 + dim, want.start, want.length)

    def lift_column(self, index: int, column: Column) -> Tensor:
        """A column's numbers: (candidates, examples, *own shape without its dimension)."""
        return self._lift_slices(index, column.axis, column.slices)

    def dim_of(self, index: int, column: Column) -> int:
        """The dimension of one example on which a column stands."""
        place = self.scene.places[index]
        assert place is not None
        return place.check_dim(column.axis, "a changed parameter")

    def is_unit(self, index: int, column: Column) -> bool:
        """Whether a column of a value of examples is one number of every row."""
        if not self.has_examples(index) or index in self.asked:
            return False
        return self.dim_of(index, column) == len(self.scene.shape(index)) - 1

    def mark(self, index: int) -> Tensor:
        """1 at the unit that a column changes, else 0: (lead, 1, …, units)."""
        column, shape = self.column(index), self.scene.shape(index)
        assert column is not None
        places = torch.arange(shape[-1], device=column.unit.device)
        here = self.by_candidate((column.unit.unsqueeze(1) == places).to(column.slices.dtype))
        return here.reshape(*here.shape[:2], *[1] * (len(shape) - 1), shape[-1])

    def spread_rows(self) -> None:
        """Make outer products of columns that are whole rows, such as a token's."""
        for index, column in self.env.items():
            if not isinstance(column, Column) or not self.has_examples(index):
                continue
            dim, ndim = self.dim_of(index, column), len(self.scene.shape(index))
            if dim == ndim - 1:
                continue
            size = self.scene.shape(index)[dim]
            here = column.unit.unsqueeze(1) == torch.arange(size, device=column.unit.device)
            shape = [1, *[1] * dim, size, *[1] * (ndim - dim - 1)]
            mark = here.to(column.slices.dtype).reshape(-1, *shape)
            rows = self.delta(index, column).unsqueeze(2 + dim)
            self.env[index] = Outer(self.base(index), ((mark, rows),))

    def base_result(self, index: int) -> Tensor:
        """What is needed of the base's value of the node's result."""
        self.asked = {**self.asked, index: self.out} if self.out is not None else self.asked
        return self.base(index)

    # -- how -----------------------------------------------------------------------------------

    def _cut(self, value: Tensor, index: int, have: Cut | None, lead: int) -> Tensor:
        """The part of a value that is asked for, of the part that there is."""
        want = self.asked.get(index)
        if want == have:
            return value
        if want is None or (have is not None and have.dim != want.dim):
            raise AssertionError("a part is asked for that was not computed")
        return value.narrow(lead + want.dim, want.start - (have.start if have else 0), want.length)

    def _lift_slices(self, index: int, axis: int, slices: Tensor) -> Tensor:
        """Slices (n, *shape without an axis) as (n, examples, *own shape without it)."""
        place = self.scene.places[index]
        assert place is not None
        if axis == place.axis:
            raise Mixed("a column of examples")
        at = place.axis - (axis < place.axis)
        shape, num = slices.shape[1:], self.scene.num
        parts = [*shape[:at], place.outer, num, place.inner, *shape[at + 1 :]]
        front = slices.reshape(len(slices), *parts).movedim(at + 2, 1)
        rest = Place(at, place.outer, place.inner).own_shape(shape)
        return front.reshape(len(slices), num, *rest)

    def pick(self, values: Tensor) -> Tensor:
        """Of (n, examples, …), those that change."""
        if self.pairs is None:
            return values
        return values[self.pairs.candidate, self.pairs.example].unsqueeze(0)

    def _fill_in(self, index: int, column: Column) -> Tensor:
        """Examples with a column put in."""
        dim = self.dim_of(index, column)
        lifted = self.lifts.of(index)
        new = self.pick(self._lift_slices(index, column.axis, column.slices))
        unit = self.by_candidate(column.unit).reshape(-1)
        if self.pairs is None:
            values = lifted.unsqueeze(0).repeat(self.num, *[1] * lifted.dim())
            at = torch.arange(self.num, device=unit.device)
            values.movedim(2 + dim, 1)[at, unit] = new
            return values
        values = lifted.index_select(0, self.pairs.example)
        at = torch.arange(len(unit), device=unit.device)
        values.movedim(1 + dim, 1)[at, unit] = new[0]
        return values.unsqueeze(0)
