"""The stages of statistics over a batch: sums over examples, then what they make of each channel.

Numbers of a channel stand in *rows*: vectors whose lanes are channels, or vectors of one channel.
For each row the examples of a candidate share SHARED vectors of doubles: how many numbers differ,
what is added to the sum and to the sum of squares, whether a lane is to be normalized anew, and the
scale and shift it then gets.
"""

from hardstep.evaluation.events.writer import Writer
from hardstep.evaluation.fused.emit_vectors import Value
from hardstep.evaluation.fused.expressions import Kind

SHARED = 6  # vectors of a row
_COUNT, _SUM, _SQUARES, _IS_NEW, _SCALE, _SHIFT = range(SHARED)


def write_statistics(w: Writer, kind: Kind) -> None:
    """Add up how the numbers of an example differ, relative to the base's means."""
    source = w.slot(kind)
    named, row_of, means, sums = w.pointer(), w.pointer(), w.pointer(), w.shared()
    with w.each_touched(source) as vector:
        row = w.read_index(row_of, vector)
        new, old = (w.load_vector(kind, array, vector) for array in (source.new, source.base))
        known = w.let(f"trunc i32 {w.read('i32', named, vector)} to i{w.lanes}")
        known = w.let(f"bitcast i{w.lanes} {known} to {w.type(Kind.I1)}")
        events = w.binary("and", Kind.I1, w.differs(kind, new, old), known)
        mean = w.load_vector(Kind.F64, means, row)
        far, near = (w.binary("fsub", Kind.F64, _widen(w, x, kind), mean) for x in (new, old))
        moved = w.binary("fsub", Kind.F64, far, near)
        squares = w.binary("fmul", Kind.F64, moved, w.binary("fadd", Kind.F64, far, near))
        added = {_COUNT: w.constant(1.0, Kind.F64), _SUM: moved, _SQUARES: squares}
        for part, value in added.items():
            place = _place(w, sums, row, part)
            total = w.load(Kind.F64, place, 8)
            chosen = w.select(events, Kind.F64, value, w.constant(0.0, Kind.F64))
            w.store(Kind.F64, w.binary("fadd", Kind.F64, total, chosen), place, 8)
        w.count_work("4")


def write_normalize(w: Writer, kind: Kind, is_plane: bool) -> None:
    """From the sums of a candidate to the scale and shift of each row; sums start anew."""
    del kind
    means, variances, weights, biases = (w.pointer() for _ in range(4))
    eps, sums = w.pointer(), w.shared()
    rows, num = w.word(), w.word()
    number = w.splat(w.let(f"uitofp i64 {num} to double"), Kind.F64)
    epsilon = w.splat(w.let(f"load double, ptr {eps}"), Kind.F64)
    zero = w.constant(0.0, Kind.F64)
    with w.loop("0", rows) as row:
        places = [_place(w, sums, row, part) for part in range(SHARED)]
        count, total, squares = (w.load(Kind.F64, places[p], 8) for p in (_COUNT, _SUM, _SQUARES))
        if is_plane:
            count, total, squares = (_add_lanes(w, value) for value in (count, total, squares))
        for part in (_COUNT, _SUM, _SQUARES):
            w.store(Kind.F64, zero, places[part], 8)
        w.store(Kind.F64, count, places[_IS_NEW], 8)
        mean, variance, weight, bias = (
            w.load_vector(Kind.F64, table, row) for table in (means, variances, weights, biases)
        )
        shift = w.binary("fdiv", Kind.F64, total, number)
        more = w.binary("fdiv", Kind.F64, squares, number)
        more = w.binary("fsub", Kind.F64, more, w.binary("fmul", Kind.F64, shift, shift))
        spread = w.binary("fadd", Kind.F64, w.binary("fadd", Kind.F64, variance, more), epsilon)
        scale = w.binary("fdiv", Kind.F64, weight, w.call("sqrt", Kind.F64, spread))
        mean = w.binary("fadd", Kind.F64, mean, shift)
        moved = w.binary("fsub", Kind.F64, bias, w.binary("fmul", Kind.F64, mean, scale))
        w.store(Kind.F64, scale, places[_SCALE], 8)
        w.store(Kind.F64, moved, places[_SHIFT], 8)


def write_apply(w: Writer, kind: Kind) -> None:
    """All numbers of the channels whose statistics changed, scaled and shifted."""
    source, target = w.slot(kind), w.slot(kind)
    sums, rows, first, step, num = w.shared(), w.word(), w.word(), w.word(), w.word()
    with w.loop("0", rows) as row:
        count = w.load(Kind.F64, _place(w, sums, row, _IS_NEW), 8)
        is_new = w.compare("fcmp une", Kind.F64, count, w.constant(0.0, Kind.F64))
        with w.when(w.any(is_new)):
            scale, shift = (
                _narrow(w, w.load(Kind.F64, _place(w, sums, row, part), 8), kind)
                for part in (_SCALE, _SHIFT)
            )
            w.count_work(w.let(f"mul i64 {num}, 4"))
            start = w.let(f"mul i64 {row}, {first}")
            with w.loop("0", num) as number:
                vector = w.let(f"add i64 {start}, {w.let(f'mul i64 {number}, {step}')}")
                value = w.fma(kind, w.current(source, vector), scale, shift)
                old = w.load_vector(kind, target.base, vector)
                w.keep_if_new(target, vector, w.select(is_new, kind, value, old))


def _place(w: Writer, sums: Value, row: Value, part: int) -> Value:
    """The address of a vector of a row."""
    number = w.let(f"add i64 {w.let(f'mul i64 {row}, {SHARED}')}, {part}")
    return w.vector_at(Kind.F64, sums, number)


def _widen(w: Writer, value: Value, kind: Kind) -> Value:
    return value if kind is Kind.F64 else w.convert("fpext", value, kind, Kind.F64)


def _narrow(w: Writer, value: Value, kind: Kind) -> Value:
    return value if kind is Kind.F64 else w.convert("fptrunc", value, Kind.F64, kind)


def _add_lanes(w: Writer, value: Value) -> Value:
    """The sum of all lanes, in every lane; added in their order."""
    typ, name = w.type(Kind.F64), f"@llvm.vector.reduce.fadd.v{w.lanes}f64"
    w.intrinsics.add(f"declare double {name}(double, {typ})")
    return w.splat(w.let(f"call double {name}(double -0.0, {typ} {value})"), Kind.F64)
