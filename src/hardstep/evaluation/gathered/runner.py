"""Operations on what changes, one after the other, or several as one compiled pass."""

from collections.abc import Container, Mapping

from torch import Tensor

from hardstep.evaluation.gathered.deferred import Deferred
from hardstep.evaluation.gathered.lifts import Lifts
from hardstep.evaluation.gathered.outer import Outer
from hardstep.evaluation.gathered.pass_runs import run_pass
from hardstep.evaluation.gathered.passes import Pass, Passes, build_pass
from hardstep.evaluation.gathered.plan import Plan
from hardstep.evaluation.gathered.reader import Reader
from hardstep.evaluation.gathered.rows import RowReader
from hardstep.evaluation.gathered.scene import Part
from hardstep.evaluation.incremental.changes import Change, Stacked
from hardstep.evaluation.incremental.columns import Column
from hardstep.evaluation.incremental.walk import Walk, attempt, carry_whole
from hardstep.evaluation.trace.nodes import Node


class Runner:
    """Runs operations of a slice.

    Args:
        walk: The slice.
        plan: What its operations read and make.
        lifts: Base values.
        passes: Where compiled passes are kept; nothing where they do not pay.
    """

    def __init__(self, walk: Walk, plan: Plan, lifts: Lifts, passes: Passes | None) -> None:
        self.walk, self.plan, self.lifts, self.passes = walk, plan, lifts, passes
        self.behind = {index for node in plan.after for index in node.inputs}
        self.behind.add(walk.record.result)

    def run(
        self,
        read: Reader,
        nodes: list[Node],
        site: str,
        kept: Container[int] = (),
        parts: Mapping[int, Part] | None = None,
    ) -> None:
        """Operations one after the other, or several in one pass, on what changes.

        Args:
            read: Values of candidates.
            nodes: The operations.
            site: A word for where this is called, under which passes are kept.
            kept: Results that are read behind them.
            parts: What is needed of values; what the plan says, if left out.
        """
        last_use = {i: n for n, node in enumerate(nodes) for i in node.inputs}
        parts = parts or self.plan.parts
        number = 0
        while number < len(nodes):
            if not any(index in read.env for index in nodes[number].inputs):
                number += 1
                continue
            carried = self._carry(read, nodes[number], parts) or self._defer(
                read, nodes[number], parts
            )
            made = None if carried else self._find_pass(read, nodes[number:], site, parts, kept)
            taken = nodes[number : number + (made.num if made else 1)]
            if isinstance(carried, Outer) and carried.is_recorded and not carried.terms:
                pass  # the base's: units of queries leave keys as they are
            elif carried is not None:
                read.put(taken[0].outputs[0], carried, read.out)
                read.pass_on(taken[0].outputs[0], taken[0].inputs)
            elif made is not None:
                ended = {
                    i for node in taken for i in node.inputs if last_use[i] < number + made.num
                }
                spent = {i for i in ended if i not in kept and i not in self.behind}
                self._run_pass(read, made, taken, parts, spent)
            else:
                self._run_one(read, taken[0], parts)
            number += len(taken)
            for index in {i for node in taken for i in node.inputs}:
                if last_use[index] < number and index not in kept and index not in self.behind:
                    read.forget(index)
        if site != "choice":
            read.build_all()

    def _carry(self, read: Reader, node: Node, parts: Mapping[int, Part]) -> Outer | None:
        """The result of a node that leaves an outer product one."""
        call = self.plan.call(node)
        if self.passes is None or call is None or call.carry is None:
            return None
        if not any(isinstance(read.env.get(i), Outer | Column) for i in node.inputs):
            return None
        read.asked, read.out = parts[node.outputs[0]]
        read.spread = self.plan.spread
        read.find = lambda index: self._find_alone(read, node, parts, index)
        return call.carry(read)

    def _defer(self, read: Reader, node: Node, parts: Mapping[int, Part]) -> Deferred | None:
        """A product that is left undone, or what a node makes of one."""
        call, out = self.plan.call(node), node.outputs[0]
        if call is None or call.defer is None or isinstance(read, RowReader):
            return None
        starts = out in self.plan.deferred and any(i in read.env for i in node.inputs)
        if not starts and not any(isinstance(read.env.get(i), Deferred) for i in node.inputs):
            return None
        if not starts and call.inner:
            return None
        read.asked, read.out = parts[out]
        return call.defer(read)

    def _find_alone(
        self, read: Reader, node: Node, parts: Mapping[int, Part], index: int
    ) -> Tensor | None:
        """One of the results of a node, by a pass of its own."""
        made = self._find_pass(read, [node], "alone", parts, {index})
        if made is None:
            return None
        self._run_pass(read, made, [node], parts, ())
        found = read.read_whole(index)
        read.forget(index)
        return found

    def _find_pass(
        self,
        read: Reader,
        nodes: list[Node],
        site: str,
        parts: Mapping[int, Part],
        kept: Container[int],
    ) -> Pass | None:
        """The pass that begins with the first of some nodes, if there is one."""
        if self.passes is None or self.plan.operators[nodes[0].name].rows is None:
            return None
        forms = tuple((i, _describe(value)) for i, value in sorted(read.env.items(), key=_first))
        key = (site, nodes[0].outputs[0], len(nodes), forms)
        known = self.passes.known
        if key not in known:
            needed = _Either(kept, self.behind)
            known[key] = build_pass(read, nodes, self.plan.operators, parts, needed)
        return known[key]

    def _run_pass(
        self,
        read: Reader,
        made: Pass,
        nodes: list[Node],
        parts: Mapping[int, Part],
        spent: Container[int],
    ) -> None:
        assert self.passes is not None
        moved = run_pass(read, made, nodes, parts, spent)
        self.passes.count(made, read.lead[0] * read.lead[1], moved)

    def _run_one(self, read: Reader, node: Node, parts: Mapping[int, Part]) -> None:
        call = self.plan.call(node)
        if call is None:
            known, env = self.walk.operators[node.name], read.env
            changes = {i: c for i in node.inputs if isinstance(c := env.get(i), Column | Stacked)}
            given = (node, known, changes, self.walk.base, None, read.num)
            env.update(zip(node.outputs, attempt(node, carry_whole, *given), strict=True))
            return
        read.asked, read.out = parts[node.outputs[0]]
        read.adds_later = self.passes is not None and read.pairs is None and self.plan.is_soft
        for index, value in zip(node.outputs, call.run(read), strict=True):
            if value is None or (call.asks and self._is_base(read, index, value)):
                continue
            if call.closes:
                read.env[index] = Stacked(value)
            else:
                read.put(index, value, read.out)
                if self.plan.is_product(node) and not _is_recorded(value):
                    read.fresh.add(index)

    def _is_base(self, read: Reader, index: int, value: Tensor | Outer) -> bool:
        """Whether a part that was taken is the base's: units of queries leave keys as they are."""
        if read.pairs is not None or read.out is not None or isinstance(value, Outer):
            return False
        base = self.lifts.of(index)
        few = bool((value[:1, :1] == base[:1]).all())  # mostly says no already
        return few and bool((value == base).all())


def _is_recorded(value: Tensor | Outer) -> bool:
    return isinstance(value, Outer) and value.is_recorded


class _Either:
    """What is in one of two."""

    def __init__(self, *some: Container[int]) -> None:
        self._some = some

    def __contains__(self, index: object) -> bool:
        return any(index in one for one in self._some)


def _describe(value: Tensor | Change | Outer | Deferred) -> object:
    """What the code of a pass depends on."""
    return value.form if isinstance(value, Outer) else type(value)


def _first(pair: tuple[int, object]) -> int:
    return pair[0]
