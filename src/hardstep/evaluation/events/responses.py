"""What changed filters and vectors make of a step's examples: the numbers that enter a kernel.

A convolution is linear in its filter, so a channel's change is that of the filter over patches of
the pictures. The kernel multiplies them; where patches would take too much memory, torch convolves.
"""

from collections.abc import Mapping

import torch
from torch import Tensor
from torch.nn.functional import pad as fill

from hardstep.evaluation.candidates import Candidates, Span
from hardstep.evaluation.events.program import Entry, Lookup, Program
from hardstep.evaluation.events.tables import Tables
from hardstep.evaluation.fused.expressions import Unfusable
from hardstep.evaluation.incremental.columns import Column, carry_columns
from hardstep.evaluation.trace.nodes import Node, Ref

Made = dict[tuple[object, ...], Tensor]


def spread_vectors(program: Program, candidates: Candidates, tile: Span, tables: Tables) -> Made:
    """Changed vectors of parameters, and what becomes of them before they meet an example."""
    sources, base = tables.written.sources, tables.written.values.__getitem__
    changed = {sources[name]: value for name, value in candidates.changed(tile).items()}
    made: Made = {}
    for number, spread in enumerate(program.spreads):
        lines = spread.make(lambda index: changed.get(index, base(index)))
        lines = lines.expand(tile.end - tile.start, -1)
        made["spread", number] = fill(lines, (0, spread.row - lines.shape[1])).contiguous()
    return made


def add_channels(program: Program, candidates: Candidates, tile: Span, tables: Tables) -> Made:
    """What changed filters add to their channels, for each entry."""
    local = candidates.local(tile)
    if local is None:
        raise Unfusable("a candidate changes two units")
    sources, base = tables.written.sources, tables.written.values.__getitem__
    env = {sources[name]: Column(0, unit, rows) for name, (unit, rows) in local.items()}
    for node in program.before:
        changes = carry_columns(node, env, base, program.operators)
        assert changes is not None
        env.update(zip(node.outputs, changes, strict=True))
    made: Made = {}
    for number, entry in enumerate(program.entries):
        unit, filters, shift = _find_changes(entry, env, base)
        if entry.has_patches:  # the kernel multiplies them by a line for each candidate, or zeros
            lines = torch.cat([filters.flatten(1), shift[:, None]], dim=1)
            made["column", number] = fill(lines, (0, 0, 0, 1))
        else:
            made["column", number] = _convolve(entry, unit, filters, shift, base)
        made[("units",)] = fill(unit, (0, 1))  # the kernel reads one more
    made[("number",)] = torch.tensor([tile.end - tile.start])
    return made


def _find_changes(
    entry: Entry, env: Mapping[int, Column], base: Lookup
) -> tuple[Tensor, Tensor, Tensor]:
    """The unit of each candidate, how its filter changes, and how its bias does."""
    _, weight, bias = entry.node.args[:3]
    kernel = base(weight.index)
    changed = env.get(weight.index)
    moved = env.get(bias.index) if isinstance(bias, Ref) else None
    unit = (changed or moved).unit  # type: ignore[union-attr]
    filters = kernel.new_zeros(len(unit), *kernel.shape[1:])
    if changed is not None:
        filters = changed.slices - kernel[unit]
    shift = kernel.new_zeros(len(unit))
    if moved is not None:
        shift = moved.slices - base(bias.index)[unit]
    return unit, filters, shift


def _convolve(entry: Entry, unit: Tensor, filters: Tensor, shift: Tensor, base: Lookup) -> Tensor:
    """What is added to channels, by torch's convolution: (examples, candidates, length)."""
    source, weight = (base(part.index) for part in entry.node.args[:2])
    own = unit // (len(weight) // entry.node.args[8])
    flat = convolve_in_groups(entry.node, source, filters, shift, own).flatten(2)
    lines = flat.new_zeros(*flat.shape[:2], entry.length)
    lines[:, :, entry.order.flatten()] = flat
    return lines


def convolve_in_groups(
    node: Node, pictures: Tensor, filters: Tensor, entries: Tensor | None, own: Tensor
) -> Tensor:
    """Each filter over the channels of its group, `own`; (examples, filters, *pixels)."""
    stride, padding, dilation, _, output_padding, groups = node.args[3:9]

    def convolve(chosen: Tensor, pieces: Tensor, bias: Tensor | None, parts: int) -> Tensor:
        return node.func(  # type: ignore[no-any-return]
            chosen, pieces, bias, stride, padding, dilation, False, output_padding, parts
        )

    if groups == 1:
        return convolve(pictures, filters, entries, 1)
    each = pictures.shape[1] // groups
    used, counts = torch.unique_consecutive(own, return_counts=True)
    parts = pictures.reshape(len(pictures), groups, each, *pictures.shape[2:])
    if len(set(counts.tolist())) == 1:  # one convolution, with the groups that are used
        return convolve(parts[:, used].flatten(1, 2), filters, entries, len(used))
    bounds = [0, *counts.cumsum(0).tolist()]
    pieces = [
        convolve(parts[:, group], filters[a:b], None if entries is None else entries[a:b], 1)
        for group, a, b in zip(used.tolist(), bounds, bounds[1:], strict=False)
    ]
    return torch.cat(pieces, dim=1)
