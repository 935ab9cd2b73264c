"""Sums of nothing but zeros.

A sum is found by adding to the base's what events change, and where all its terms become zero,
rounding is left of it. A threshold at zero behind it shows the difference. So sums that nearly
vanish are looked at again: if all numbers that they are of are zero, they are what their bias is.
"""

from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from hardstep.evaluation.events.layouts import Layout
from hardstep.evaluation.events.linear import MOST_ENTRIES, as_index
from hardstep.evaluation.events.maps import list_by
from hardstep.evaluation.events.planner import Planner
from hardstep.evaluation.events.program import Fixed, Lookup, Slot, Table, Word, slot_words
from hardstep.evaluation.events.stages import bounds
from hardstep.evaluation.events.writer import SlotNames, Writer
from hardstep.evaluation.fused.emit_vectors import Value
from hardstep.evaluation.fused.expressions import Kind

NEAR = 1e3  # units in the last place of the largest sum: what rounding may leave, with room
LARGEST_EXACT = 2**22  # sums of integers up to here round nothing in single precision


class Sums(NamedTuple):
    """Recorded values of a linear map."""

    terms: int  # what changes
    results: int
    weight: int | None = None
    bias: int | None = None  # a number per channel


class Terms(NamedTuple):
    """Which numbers are added up: number `place[i]` belongs to list `number[i]`."""

    place: Tensor
    number: Tensor
    number_of: Tensor  # the list of each named number of the result, in its shape


def restore_zeros(planner: Planner, slot: Slot, target: Slot, sums: Sums, terms: Terms) -> None:
    """Add the stage behind the one that adds the events of `slot` to `target`."""
    if len(terms.place) > MOST_ENTRIES:
        return
    order, num = terms.number.argsort(stable=True), int(terms.number_of.max()) + 1
    number_of = torch.full((target.size,), num)
    number_of[target.layout.places.flatten()] = terms.number_of.flatten()
    starts = list_by(terms.number[order], num + 1)
    words: list[Word] = [*slot_words(slot), *slot_words(target)]
    words += [_find_limit(sums), _lay_out_bias(sums, target.layout)]
    words += [as_index(number_of), Fixed(starts), as_index(terms.place[order])]
    write = partial(write_zeros, kind=slot.kind)
    planner.stage("zeros", write, words, target.level - 0.25, [slot, target])


def _find_limit(sums: Sums) -> Table:
    """How near to its bias a sum is looked at again; 0 where none has to be."""

    def make(values: Lookup) -> Tensor:
        results = values(sums.results)
        factors = [values(i) for i in (sums.terms, sums.weight) if i is not None]
        may_vanish = sums.bias is None or bool((values(sums.bias) == 0).any())
        if not may_vanish or _is_exact(factors):
            return results.new_zeros(1)
        return (NEAR * torch.finfo(results.dtype).eps * results.abs().max()).reshape(1)

    return Table(("near zero", *sums), make)


def _is_exact(factors: list[Tensor]) -> bool:
    """Whether sums of products round nothing: signs, spikes and other small integers."""
    whole = all(torch.equal(factor, factor.round()) for factor in factors)
    largest = torch.stack([factor.abs().max().double() for factor in factors]).prod()
    return whole and float(largest) * factors[-1].numel() < LARGEST_EXACT


def _lay_out_bias(sums: Sums, layout: Layout) -> Table:
    """What a sum of zeros is, where the sums stand."""

    def make(values: Lookup) -> Tensor:
        results = values(sums.results)
        entries = results.new_zeros(1) if sums.bias is None else values(sums.bias)
        wide = entries.reshape(-1, *[1] * (layout.places.dim() - 1)).expand(layout.places.shape)
        return layout.lay_out(wide.unsqueeze(layout.axis))

    return Table(("bias", *sums, layout.key), make)


def write_zeros(w: Writer, kind: Kind) -> None:
    """Sums near their bias whose terms are all zero become their bias."""
    source, target = w.slot(kind), w.slot(kind)
    limits, bias, number_of, starts, places = (w.pointer() for _ in range(5))
    limit = w.read(kind.element, limits, "0")
    with (
        w.when(w.let(f"fcmp ogt {kind.element} {limit}, 0.0")),
        w.each_touched(target) as vector,
    ):
        old = w.load_vector(kind, bias, vector)
        gap = w.binary("fsub", kind, w.load_vector(kind, target.new, vector), old)
        near = w.compare("fcmp ole", kind, w.call("fabs", kind, gap), w.splat(limit, kind))
        some = w.compare("fcmp one", kind, gap, w.constant(0.0, kind))
        both = w.binary("and", Kind.I1, near, some)
        first = w.let(f"mul i64 {vector}, {w.lanes}")
        with w.each_bit(w.let(f"bitcast {w.type(Kind.I1)} {both} to i{w.lanes}")) as lane:
            place = w.let(f"add i64 {first}, {lane}")
            alive = _count_nonzero(w, source, starts, places, w.read_index(number_of, place))
            with w.when(w.let(f"icmp eq i64 {alive}, 0")):
                entry = w.read(kind.element, bias, place)
                w.line(f"store {kind.element} {entry}, ptr {w.offset(kind, target.new, place)}")


def _count_nonzero(
    w: Writer, source: SlotNames, starts: Value, places: Value, number: Value
) -> Value:
    """How many terms of a list are not zero."""
    begin, end = bounds(w, starts, number)
    w.count_work(w.let(f"sub i64 {end}, {begin}"))
    alive, element = w.variable(Kind.I64, scalar=True), source.kind.element
    w.line(f"store i64 0, ptr {alive}")
    with w.loop(begin, end) as at:
        place = w.read_index(places, at)
        touched = w.is_touched(source, w.let(f"udiv i64 {place}, {w.lanes}"))
        array = w.let(f"select i1 {touched}, ptr {source.new}, ptr {source.base}")
        term = w.let(f"fcmp une {element} {w.read(element, array, place)}, 0.0")
        w.add_to(alive, w.let(f"zext i1 {term} to i64"))
    return w.let(f"load i64, ptr {alive}")
