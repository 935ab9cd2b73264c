"""Behind a hard choice few tokens differ from the base: only these run on while they stay apart.

A *row* is an index of a dimension of one example of one candidate.
"""

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass

import torch
from torch import Tensor

from hardstep.evaluation.gathered.lifts import Lifts, Pairs
from hardstep.evaluation.gathered.places import Mixed
from hardstep.evaluation.gathered.reader import Reader
from hardstep.evaluation.gathered.scene import Call, Cut, Part, Scene, Sum
from hardstep.evaluation.trace.nodes import Node

FEW = 0.5  # up to this share of changed rows, only these are computed
LATE = 4  # operations behind a choice, at most, where a region may begin
LEAST = 2  # products that have to be among the operations for it to pay


@dataclass(frozen=True)
class Region:
    """Operations that keep rows apart, behind a choice."""

    starts: tuple[int, ...]  # the values that enter it: what is chosen, shortcuts
    before: int  # the number of nodes up to it
    end: int  # and up to the end of the region
    dims: Mapping[int, int]  # on which dimension of each value the rows stand
    leaving: tuple[int, ...]  # the values that are read behind it


def find_region(
    scene: Scene,
    sources: Set[int],
    nodes: Sequence[Node],
    hard: Sequence[bool],
    products: Sequence[bool],
) -> Region | None:
    """The region behind the first hard choice that keeps the rows of all that changes apart.

    It begins with the choice, or a few operations later, where what it chooses from changes, too.
    """
    for number in range(len(nodes)):
        if not hard[number] or scene.places.get(nodes[number].outputs[0]) is None:
            continue
        for first in range(number + 1, min(number + 1 + LATE, len(nodes))):
            if products[first - 1]:
                break
            region = _begin_region(scene, sources, nodes, products, first)
            if region is not None:
                return region
    return None


def _begin_region(
    scene: Scene, sources: Set[int], nodes: Sequence[Node], products: Sequence[bool], first: int
) -> Region | None:
    """The region that begins with a node, if it pays."""
    made = {index: n for n, node in enumerate(nodes) for index in node.outputs}
    behind = {i for later in nodes[first:] for i in later.inputs}
    live = {i for i in behind if made.get(i, first) < first} | (behind & sources)
    if any(scene.places.get(index) is None for index in live):
        return None
    shapes = [scene.shape(index) for index in live]
    found = []
    for dim in range(min(map(len, shapes), default=0)):
        if len({shape[dim] for shape in shapes}) == 1:
            found.append(follow_rows(scene, nodes, first, dict.fromkeys(sorted(live), dim)))
    worth = [sum(products[one.before : one.end]) for one in found]
    best = max(range(len(found)), key=worth.__getitem__, default=None)
    return found[best] if best is not None and worth[best] >= LEAST else None


def follow_rows(
    scene: Scene, nodes: Sequence[Node], first: int, starts: Mapping[int, int]
) -> Region:
    """From a node on, as far as rows on dimensions of changed values stay apart."""
    made = {index for node in nodes for index in node.outputs}
    dims, end = dict(starts), first
    for node in nodes[first:]:
        call = scene.calls.get(node.outputs[0])
        changed = {i: dims[i] for i in node.inputs if i in dims}
        if call is None or any(i in made and i not in dims for i in node.inputs):
            break
        found = _find_dim(call, len(scene.shape(node.outputs[0])), changed)
        if found is None:
            break
        dims.update(dict.fromkeys(node.outputs, found))
        end += 1
    leaving = {i for node in nodes[end:] for i in node.inputs if i in dims}
    return Region(tuple(starts), first, end, dims, tuple(sorted(leaving)))


def _find_dim(call: Call, num: int, changed: Mapping[int, int]) -> int | None:
    """The dimension of a result on which the rows of its arguments stand."""
    if call.tracks is None or call.closes:
        return None
    for dim in range(num):
        try:
            tracked = call.tracks(dim)
        except Mixed:
            continue
        if all(tracked.get(index) == own for index, own in changed.items()):
            return dim
    return None


class RowReader(Reader):
    """Arguments of which only rows are read; the leading axes are (1, rows)."""

    def __init__(self, lifts: Lifts, num: int, pairs: Pairs, index: Tensor) -> None:
        super().__init__(lifts, num, pairs)
        self.index = index

    def base(self, index: int) -> Tensor:
        """See `Reader.base`."""
        want = self.asked.get(index)
        assert self.pairs is not None
        if want is None:
            return super().base(index)
        rows = self.lifts.of(index).movedim(1 + want.dim, 1)[self.pairs.example, self.index]
        return rows.unsqueeze(1 + want.dim).unsqueeze(0)

    def _cut(self, value: Tensor, index: int, have: Cut | None, lead: int) -> Tensor:
        want = self.asked.get(index)
        if lead == 2 or want is None:
            return super()._cut(value, index, have, lead)
        # A value that all share has other numbers in every row.
        rows = value.movedim(want.dim, 0)[self.index]
        return rows.unsqueeze(1 + want.dim).unsqueeze(0)


def find_rows(values: Tensor, base: Tensor, dim: int) -> Tensor:
    """(candidates, examples, indices): where a value differs from the base."""
    differs = (values != base).movedim(2 + dim, 2)
    return differs.flatten(3).any(dim=3) if differs.dim() > 3 else differs


def fill_in(read: RowReader, region: Region, lifts: Lifts) -> dict[int, Tensor]:
    """All examples of all candidates from rows, for what leaves a region."""
    assert read.pairs is not None
    values = {}
    for index in region.leaving:
        dim, rows, base = region.dims[index], read.env[index], lifts.of(index)
        assert isinstance(rows, Tensor)
        whole = base.unsqueeze(0).repeat(read.num, *[1] * base.dim())
        places = read.pairs.candidate, read.pairs.example, read.index
        whole.movedim(2 + dim, 2)[places] = rows[0].squeeze(1 + dim)
        values[index] = whole
    return values


def put_back(read: RowReader, region: Region, lifts: Lifts) -> tuple[Pairs, dict[int, Tensor]]:
    """Whole examples from rows, for what leaves a region."""
    assert read.pairs is not None
    pairs, place = find_pairs(read, lifts.scene.num)
    values = {}
    for index in region.leaving:
        dim, rows = region.dims[index], read.env[index]
        assert isinstance(rows, Tensor)
        whole = lifts.of(index).index_select(0, pairs.example)
        whole.movedim(1 + dim, 1)[place, read.index] = rows[0].squeeze(1 + dim)
        values[index] = whole
    return pairs, values


def add_rows(
    read: RowReader, index: int, out: int, adds: Sum, lifts: Lifts
) -> tuple[Pairs, Tensor]:
    """A sum over all rows of an example, from the base's and those that differ."""
    assert read.pairs is not None
    pairs, place = find_pairs(read, lifts.scene.num)
    new, dim = read.env[index], adds.dim
    assert isinstance(new, Tensor)
    old = lifts.of(index).movedim(1 + dim, 1)[read.pairs.example, read.index]
    change = (new[0].squeeze(1 + dim) - old) / adds.divisor
    return pairs, lifts.of(out).index_select(0, pairs.example).index_add_(0, place, change)


def find_pairs(read: RowReader, num: int) -> tuple[Pairs, Tensor]:
    """The examples that have rows, and the number of each row's among them."""
    assert read.pairs is not None
    found, place = torch.unique(
        read.pairs.candidate * num + read.pairs.example, return_inverse=True
    )
    return Pairs(found // num, found % num), place


def take_rows(values: Tensor, at: Tensor, dim: int) -> Tensor:
    """Of (candidates, examples, …), the rows at places (3, rows); axes of size 1 are broadcast."""
    front = values.movedim(2 + dim, 2)
    places = [own if size > 1 else 0 * own for own, size in zip(at, front.shape, strict=False)]
    return front[tuple(places)].unsqueeze(1 + dim)


def plan_rows(scene: Scene, nodes: Sequence[Node], region: Region) -> Mapping[int, Part]:
    """What each node of a region reads and makes, by its first result."""
    parts: dict[int, Part] = {}
    for node in nodes[region.before : region.end]:
        call, out = scene.calls[node.outputs[0]], region.dims[node.outputs[0]]
        assert call.tracks is not None
        asked = {index: Cut(dim, 0, 1) for index, dim in call.tracks(out).items()}
        parts[node.outputs[0]] = asked, Cut(out, 0, 1)
    return parts
