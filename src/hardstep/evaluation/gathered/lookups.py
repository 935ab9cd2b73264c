"""Operations that take what an index says: rows of a table, and places within one example."""

from collections.abc import Mapping

import torch
from torch import Tensor

from hardstep.evaluation.gathered.places import Mixed, Place
from hardstep.evaluation.gathered.reader import Reader
from hardstep.evaluation.gathered.scene import Call, Scene
from hardstep.evaluation.incremental.along import find_dims
from hardstep.evaluation.incremental.columns import Column
from hardstep.evaluation.trace.nodes import Node, Ref


def call_embedding(node: Node, scene: Scene) -> Call:
    """Rows of a table; candidates may change a row of it."""
    return call_rows(scene, node.args[0].index, node.args[1].index)


def call_index(node: Node, scene: Scene) -> Call:
    """The same, written with brackets."""
    table, indices = node.args[:2]
    if len(indices) != 1 or not isinstance(indices[0], Ref):
        raise Mixed("indexing other than rows of a table")
    if scene.base(indices[0].index).dtype == torch.bool:
        raise Mixed("indexing by truths")
    return call_rows(scene, table.index, indices[0].index)


def call_rows(scene: Scene, table: int, at: int) -> Call:
    """Rows of a table that all examples share, at the places that each of them names."""
    place, own = scene.places[at], len(scene.shape(at))
    if place is None or scene.places[table]:
        raise Mixed("a table that is no parameter")

    def run(read: Reader) -> tuple[Tensor]:
        places, weight = read.read(at), read.scene.base(table)
        change = read.env.get(table)
        if change is not None and not isinstance(change, Column):
            raise Mixed("a table for each candidate")
        found = weight[places]
        if change is None:
            return (found,)
        if change.axis != 0:
            raise Mixed("a column of a table")
        count = places % len(weight)
        unit, rows = read.by_candidate(change.unit), read.by_candidate(change.slices)
        here = count == unit.reshape(*unit.shape, *[1] * (places.dim() - 2))
        new = rows.reshape(*rows.shape[:2], *[1] * (places.dim() - 2), *rows.shape[2:])
        return (
            torch.where(here.reshape(*here.shape, *[1] * (new.dim() - here.dim())), new, found),
        )

    def reach(scene: Scene, column: Column) -> Tensor:
        lifted = place.lift(scene.base(at), scene.num).reshape(scene.num, -1)
        occurs = occurrences(lifted, len(scene.base(table)))
        return occurs[column.unit]

    def track(dim: int) -> Mapping[int, int]:
        if dim >= own:
            raise Mixed("the units of a table")
        return {at: dim}

    return Call([place], run, track, reaches=reach)


def call_bag(node: Node, scene: Scene) -> Call:
    """Sums or means of rows of a table, the same number of rows for every example."""
    table, at, offsets = (ref.index for ref in node.args[:3])
    defaults = [False, 0, False, None, False, -1]
    given = [*node.args[3:], *defaults[len(node.args) - 3 :]]
    mode, weights, last, padding = given[1], *given[3:6]
    place = scene.places[at]
    if place is None or place.axis != 0 or place.outer != 1 or mode == 2 or last:
        raise Mixed(f"{node.name} other than sums or means of one bag per example")
    if weights is not None and scene.places[weights.index] != place:
        raise Mixed(f"{node.name} with weights that are no example's")
    starts = torch.arange(scene.num, device=scene.base(offsets).device) * place.inner
    if not torch.equal(scene.base(offsets), starts):
        raise Mixed(f"{node.name} of bags of different sizes")
    rows = call_rows(scene, table, at)

    def run(read: Reader) -> list[Tensor | None]:
        (values,) = rows.run(read)
        assert values is not None
        places = read.read(at).reshape(*values.shape[:2], place.inner)
        values = values.reshape(*places.shape, -1)
        counts = (places != padding).unsqueeze(-1)
        values = values * counts
        if weights is not None:
            values = values * read.read(weights.index).reshape(*places.shape[:2], -1, 1)
        total = values.sum(dim=2)
        if mode == 1:
            total = total / counts.sum(dim=2).clamp_min(1)
        return [total, None, None, None]

    return Call([Place(0), None, None, None], run, reaches=rows.reaches)


def occurrences(places: Tensor, num: int) -> Tensor:
    """(rows, examples): whether a row of a table is read by an example."""
    found = torch.zeros(num, len(places), dtype=torch.bool, device=places.device)
    example = torch.arange(len(places), device=places.device)[:, None].expand(places.shape)
    found[places % num, example] = True
    return found


def call_gather(node: Node, scene: Scene) -> Call:
    """What an index chooses along a dimension of one example."""
    source, at = node.args[0].index, node.args[2].index
    place = scene.places[at]
    if place is None or scene.places[source] != place:
        raise Mixed("gather of examples on different axes")
    (dim,) = find_dims(node, scene.base) or [0]
    own = place.check_dim(dim, node.name)
    depth = len(scene.shape(source))
    same = scene.shape(source)[:own] == scene.shape(at)[:own]
    same = same and scene.shape(source)[own + 1 :] == scene.shape(at)[own + 1 :]

    def run(read: Reader) -> tuple[Tensor]:
        places = read.read(at)
        if own != depth - 2 or not same or source in read.asked:
            value, places = map(read.widen, (read.read(source), places))
            return (value.gather(own + 2, places),)
        if read.is_changed(source):
            value = read.widen(read.read(source))
            numbers = torch.arange(value.shape[:2].numel(), device=value.device)
            return (_pick(value.flatten(0, 1), numbers.reshape(value.shape[:2]), places),)
        table = read.lifts.of(source)
        whole = torch.arange(len(table), device=table.device)
        example = whole if read.pairs is None else read.pairs.example
        return (_pick(table, example.unsqueeze(0), places),)

    def track(dim: int) -> Mapping[int, int]:
        if not same:
            raise Mixed("gather of a part")
        return {at: dim} if dim == own else {source: dim, at: dim}

    return Call([place], run, track)


def _pick(table: Tensor, example: Tensor, places: Tensor) -> Tensor:
    """Of (examples, …, n, units), what examples (lead) have at places (lead, …, m, units).

    An index that is the same for all units takes whole rows, which are copied at once.
    """
    num, units = table.shape[-2:]
    heads = torch.arange(table.shape[1:-2].numel(), device=table.device)
    apart = example.unsqueeze(-1) * len(heads) + heads
    flat, start = (
        table.reshape(-1, units),
        apart.reshape(*example.shape, *table.shape[1:-2], 1) * num,
    )
    if places.stride(-1) == 0:
        at = start + places[..., 0]
        return flat.index_select(0, at.reshape(-1)).reshape(*at.shape, units)
    at = start.unsqueeze(-1) + places
    return flat.gather(0, at.reshape(-1, units)).reshape(at.shape)
