"""One pass over the rows of many candidates, in LLVM assembly.

A row stays in registers: element-wise operations and reductions along it cost one reading of what
goes in and one writing of what comes out. Expressions with a domain have a number at every place of
a row, others one number per row. Tables are read at (candidate, example, row), each with strides of
its own, which are 0 where all share the numbers.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from hardstep.evaluation.fused.emit_expressions import emit_elementwise, emit_extreme
from hardstep.evaluation.fused.emit_vectors import VECTOR_BYTES, Value, Vectors
from hardstep.evaluation.fused.expressions import (
    Constant,
    Elementwise,
    Expr,
    Fn,
    Kind,
    Read,
    Reduce,
    Reduction,
    Unfusable,
)
from hardstep.evaluation.fused.schedule import reachable

MOST_VECTORS = 32  # of a row; more would not stay in registers
STRIDES = 3  # of a table: candidate, example, row
Fold = Callable[["RowWriter", list[Value], list[Value]], list[Value]]


@dataclass(frozen=True)
class Output:
    """What a pass writes: a row or number for every row, or the sum of all rows of an example."""

    expr: Expr
    summed: bool = False


class RowWriter(Vectors):
    """The function of one pass."""

    def __init__(self, size: int, kinds: Sequence[Kind]) -> None:
        widest = max((kind.num_bytes for kind in kinds if kind.is_float), default=8)
        super().__init__(VECTOR_BYTES // widest)
        self.size, self.num = size, -(-size // self.lanes)
        if self.num > MOST_VECTORS:
            raise Unfusable(f"rows of {size} numbers")

    def is_cut(self, part: int) -> bool:
        """Whether a vector has fewer numbers than lanes."""
        return (part + 1) * self.lanes > self.size

    @property
    def mask(self) -> Value:
        """The lanes of the last vector that are of the row."""
        left = self.size - (self.num - 1) * self.lanes
        return f"<{', '.join('i1 true' if n < left else 'i1 false' for n in range(self.lanes))}>"

    def place(self, kind: Kind, row: Value, part: int) -> Value:
        """Where a vector of a row starts."""
        return self.offset(kind, row, str(part * self.lanes))

    def load_part(self, kind: Kind, row: Value, part: int) -> Value:
        """A vector of a row."""
        place = self.place(kind, row, part)
        if not self.is_cut(part):
            return self.load(kind, place, kind.num_bytes)
        typ, label = f"<{self.lanes} x {kind.stored}>", _label(kind)
        name = f"@llvm.masked.load.v{self.lanes}{label}.p0"
        self.intrinsics.add(f"declare {typ} {name}(ptr, i32 immarg, {self.type(Kind.I1)}, {typ})")
        rest = f"i32 {kind.num_bytes}, {self.type(Kind.I1)} {self.mask}, {typ} zeroinitializer"
        found = self.let(f"call {typ} {name}(ptr {place}, {rest})")
        return self.let(f"icmp ne {typ} {found}, zeroinitializer") if kind is Kind.I1 else found

    def store_part(self, kind: Kind, value: Value, row: Value, part: int) -> None:
        """A vector of a row to memory."""
        place, typ = self.place(kind, row, part), f"<{self.lanes} x {kind.stored}>"
        if kind is Kind.I1:
            value = self.let(f"zext {self.type(kind)} {value} to {typ}")
        if not self.is_cut(part):
            self.line(f"store {typ} {value}, ptr {place}, align {kind.num_bytes}")
            return
        name = f"@llvm.masked.store.v{self.lanes}{_label(kind)}.p0"
        self.intrinsics.add(f"declare void {name}({typ}, ptr, i32 immarg, {self.type(Kind.I1)})")
        rest = f"i32 {kind.num_bytes}, {self.type(Kind.I1)} {self.mask}"
        self.line(f"call void {name}({typ} {value}, ptr {place}, {rest})")

    def load_one(self, kind: Kind, row: Value) -> Value:
        """One number, in every lane."""
        found = self.let(f"load {kind.stored}, ptr {row}, align {kind.num_bytes}")
        if kind is Kind.I1:
            found = self.let(f"icmp ne i8 {found}, 0")
        return self.splat(found, kind)

    def store_one(self, kind: Kind, value: Value, row: Value) -> None:
        """The number that every lane holds."""
        one = self.let(f"extractelement {self.type(kind)} {value}, i64 0")
        if kind is Kind.I1:
            one = self.let(f"zext i1 {one} to i8")
        self.line(f"store {kind.stored} {one}, ptr {row}, align {kind.num_bytes}")

    def shuffle(self, kind: Kind, value: Value, order: Sequence[int]) -> Value:
        """Lanes in another order."""
        places = ", ".join(f"i32 {lane}" for lane in order)
        typ = self.type(kind)
        mask = f"<{self.lanes} x i32> <{places}>"
        return self.let(f"shufflevector {typ} {value}, {typ} poison, {mask}")


def _label(kind: Kind) -> str:
    return "i8" if kind is Kind.I1 else kind.label


# -- reductions --------------------------------------------------------------------------------


def _fold(w: RowWriter, kinds: Sequence[Kind], parts: list[list[Value]], fold: Fold) -> list[Value]:
    """Vectors become one, and its lanes one number, in an order that is always the same."""
    while len(parts) > 1:
        joined = [fold(w, *pair) for pair in zip(parts[::2], parts[1::2], strict=False)]
        parts = joined + parts[2 * len(joined) :]
    (found,) = parts
    step = w.lanes // 2
    while step:
        order = [lane ^ step for lane in range(w.lanes)]
        other = [w.shuffle(kind, one, order) for kind, one in zip(kinds, found, strict=True)]
        found, step = fold(w, found, other), step // 2
    return found


def _reduce(w: RowWriter, expr: Reduce, parts: list[Value]) -> Value:
    kind = expr.args[0].kind
    if not kind.is_float:
        raise Unfusable(f"{expr.reduction.value} of {kind} along a row")
    if expr.reduction is Reduction.TOTAL:
        parts = _fill(w, kind, parts, 0.0)
        return _fold(w, [kind], [[p] for p in parts], lambda w, a, b: _add(w, kind, a, b))[0]
    largest = expr.reduction in (Reduction.MAX, Reduction.ARGMAX)
    parts = _fill(w, kind, parts, -math.inf if largest else math.inf)
    if expr.reduction in (Reduction.MAX, Reduction.MIN):
        return _fold(w, [kind], [[p] for p in parts], _find_extreme(largest, kind))[0]
    numbered = [[part, _number(w, n)] for n, part in enumerate(parts)]
    return _fold(w, [kind, Kind.I64], numbered, _find_best("ogt" if largest else "olt", kind))[1]


def _find_extreme(largest: bool, kind: Kind) -> Fold:
    def fold(w: RowWriter, a: list[Value], b: list[Value]) -> list[Value]:
        return [emit_extreme(w, Fn.MAX if largest else Fn.MIN, kind, a[0], b[0])]

    return fold


def _fill(w: RowWriter, kind: Kind, parts: list[Value], neutral: float) -> list[Value]:
    """Lanes behind the end of a row, so that they do not count."""
    if not w.is_cut(w.num - 1):
        return parts
    return [*parts[:-1], w.select(w.mask, kind, parts[-1], w.constant(neutral, kind))]


def _add(w: RowWriter, kind: Kind, a: list[Value], b: list[Value]) -> list[Value]:
    return [w.binary("fadd", kind, a[0], b[0])]


def _number(w: RowWriter, part: int) -> Value:
    """The places of a vector's lanes in the row."""
    return f"<{', '.join(f'i64 {part * w.lanes + lane}' for lane in range(w.lanes))}>"


def _find_best(beats: str, kind: Kind) -> Fold:
    """The first of the best numbers; as in torch, not-a-number beats every number."""

    def fold(w: RowWriter, a: list[Value], b: list[Value]) -> list[Value]:
        better = w.compare(f"fcmp {beats}", kind, b[0], a[0])
        nan_a, nan_b = (w.compare("fcmp uno", kind, one[0], one[0]) for one in (a, b))
        other = w.binary("xor", Kind.I1, nan_a, w.constant(True, Kind.I1))
        new = w.binary("or", Kind.I1, better, w.binary("and", Kind.I1, nan_b, other))
        equal = w.compare("fcmp oeq", kind, a[0], b[0])
        equal = w.binary("or", Kind.I1, equal, w.binary("and", Kind.I1, nan_a, nan_b))
        first = w.compare("icmp slt", Kind.I64, b[1], a[1])
        new = w.binary("or", Kind.I1, new, w.binary("and", Kind.I1, equal, first))
        return [w.select(new, kind, b[0], a[0]), w.select(new, Kind.I64, b[1], a[1])]

    return fold


# -- the pass ----------------------------------------------------------------------------------


def write_pass(size: int, kinds: Sequence[Kind], outputs: Sequence[Output]) -> str:
    """The module of a pass over rows of a size; `kinds` are those of the tables that it reads."""
    needed = reachable([one.expr for one in outputs])
    w = RowWriter(size, [*kinds, *(expr.kind for expr in needed)])
    types = [*kinds, *(one.expr.kind for one in outputs)]
    sums = [[w.variable(one.expr.kind) for _ in range(one.summed * w.num)] for one in outputs]

    def begin() -> None:
        for number, kind in enumerate(types):
            own = _step(w, kind, f"%p{number}", number, 0, "%c")
            at = w.let(f"mul i64 %e, %s{number * STRIDES + 1}")
            w.line(f"%g{number} = getelementptr {kind.stored}, ptr {own}, i64 {at}")
        for one, places in zip(outputs, sums, strict=True):
            for place in places:
                w.store(one.expr.kind, w.constant(0, one.expr.kind), place, 64)

    def run() -> None:
        rows = [_step(w, kind, f"%g{n}", n, 2, "%t") for n, kind in enumerate(types)]
        values = _compute(w, needed, rows)
        for one, places, row in zip(outputs, sums, rows[len(kinds) :], strict=True):
            _put(w, one, values[id(one.expr)], places, row)

    def end() -> None:
        for number, (one, places) in enumerate(zip(outputs, sums, strict=True), len(kinds)):
            for part, place in enumerate(places):
                total = w.load(one.expr.kind, place, 64)
                w.store_part(one.expr.kind, total, f"%g{number}", part)

    return _join(w, len(types), *(_write(w, section) for section in (begin, run, end)))


def _write(w: RowWriter, section: Callable[[], None]) -> list[str]:
    """The lines of a section."""
    w.body = []
    section()
    return w.body


def _put(w: RowWriter, one: Output, found: list[Value], places: list[Value], row: Value) -> None:
    """Write a result, or add it to the sums of an example."""
    kind = one.expr.kind
    if one.summed:
        for part, place in enumerate(places):
            total = w.binary("fadd", kind, w.load(kind, place, 64), found[part])
            w.store(kind, total, place, 64)
    elif one.expr.domain is None:
        w.store_one(kind, found[0], row)
    else:
        for part, value in enumerate(found):
            w.store_part(kind, value, row, part)


def _step(w: RowWriter, kind: Kind, table: Value, number: int, axis: int, index: Value) -> Value:
    """The address of a table at an index of an axis."""
    at = w.let(f"mul i64 {index}, %s{number * STRIDES + axis}")
    return w.offset(kind, table, at)


def _compute(w: RowWriter, needed: Sequence[Expr], rows: Sequence[Value]) -> dict[int, list[Value]]:
    """The vectors of every expression; stage by stage, and within one vector by vector."""
    values: dict[int, list[Value]] = {}
    for stage in range(max(expr.stage for expr in needed) + 1):
        own = [expr for expr in needed if expr.stage == stage]
        for expr in own:
            if expr.domain is None:
                values[id(expr)] = [_emit(w, expr, rows, values, 0)]
            else:
                values[id(expr)] = []
        wide = [expr for expr in own if expr.domain is not None]
        for part in range(w.num):
            for expr in wide:
                values[id(expr)].append(_emit(w, expr, rows, values, part))
    return values


def _emit(
    w: RowWriter, expr: Expr, rows: Sequence[Value], values: dict[int, list[Value]], part: int
) -> Value:
    if isinstance(expr, Constant):
        return w.constant(expr.value, expr.kind)
    if isinstance(expr, Read):
        row = rows[expr.table]
        if expr.domain is None:
            return w.load_one(expr.kind, row)
        return w.load_part(expr.kind, row, part)
    if isinstance(expr, Reduce):
        return _reduce(w, expr, values[id(expr.args[0])])
    if not isinstance(expr, Elementwise):
        raise Unfusable("an expression that is not of a row")
    args = [values[id(arg)][part if arg.domain is not None else 0] for arg in expr.args]
    return emit_elementwise(w, expr, args)


def _join(w: RowWriter, num: int, before: list[str], rows: list[str], after: list[str]) -> str:
    """Loops over the examples of candidates, and over the rows of each."""
    reads = []
    for number in range(num):
        reads.append(f"  %a{number} = getelementptr ptr, ptr %tables, i64 {number + 1}")
        reads.append(f"  %p{number} = load ptr, ptr %a{number}")
    for number in range(STRIDES * num):
        reads.append(f"  %w{number} = getelementptr i64, ptr %words, i64 {number}")
        reads.append(f"  %s{number} = load i64, ptr %w{number}")
    lines = [
        "define void @run(ptr %tables, i64 %first, i64 %last, i64 %examples, i64 %rows, "
        "ptr %scratch) #0 {",
        "entry:",
        *w.head,
        "  %words = load ptr, ptr %tables",
        *reads,
        "  br label %groups",
        "groups:",
        "  %i = phi i64 [ %first, %entry ], [ %i_next, %group_end ]",
        "  %c = udiv i64 %i, %examples",
        "  %e = urem i64 %i, %examples",
        *before,
        "  br label %each",
        "each:",
        "  %t = phi i64 [ 0, %groups ], [ %t_next, %each ]",
        *rows,
        "  %t_next = add i64 %t, 1",
        "  %t_done = icmp sge i64 %t_next, %rows",
        "  br i1 %t_done, label %group_end, label %each",
        "group_end:",
        *after,
        "  %i_next = add i64 %i, 1",
        "  %i_done = icmp sge i64 %i_next, %last",
        "  br i1 %i_done, label %end, label %groups",
        "end:",
        "  ret void",
        "}",
        *sorted(w.intrinsics),
        'attributes #0 = { nounwind "prefer-vector-width"="512" "min-legal-vector-width"="512" }',
        "",
    ]
    return "\n".join(lines)
