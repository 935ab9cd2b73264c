"""From expressions to one LLVM function: loops over examples, candidates and the axes of layers.

    for a vector of examples                tables of these examples stay in the first cache
        for a candidate
            columns; go on only if a lane differs from the base
            stage by stage: values per lane, products, loops over axes
            add the differences of the loss to the candidate's sum

In the text, `%rows` is the number of examples.
"""

from collections import ChainMap, Counter
from collections.abc import Iterable, Mapping
from itertools import chain

from hardstep.evaluation.fused.emit_expressions import emit_elementwise, emit_leaf
from hardstep.evaluation.fused.emit_products import define_product
from hardstep.evaluation.fused.emit_reductions import reduce_by, start_reduction
from hardstep.evaluation.fused.emit_vectors import Value, Vectors, gather
from hardstep.evaluation.fused.expressions import (
    Access,
    Concat,
    Elementwise,
    Expr,
    Kind,
    Leaf,
    Linear,
    Lookup,
    Pick,
    Product,
    Read,
    Reduced,
)
from hardstep.evaluation.fused.outline import Outlined, outline_loop, outline_value
from hardstep.evaluation.fused.schedule import Loop, Schedule, find_conditions, reachable
from hardstep.evaluation.fused.tables import Units
from hardstep.evaluation.fused.translate import Program

CACHE_BYTES = 256 << 10  # of old values that stay near while a candidate is evaluated
COPIES = 8  # of a function; loops over time call one at every step
MANY_STEPS = 32  # of a loop over time; the text of more takes long to compile
MANY_LOOPS = 128  # beyond that, compiling what calls them well takes longer than it saves


class KernelWriter:
    """Writes the kernel of one program."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.lanes = 8 if any(_reads_doubles(expr) for expr in program.graph) else 16
        self.v = Vectors(self.lanes)
        self.schedule = Schedule(program, self.lanes)
        self.counts = {
            listed: self.v.variable(Kind.I64, scalar=True)
            for listed in dict.fromkeys(self.schedule.changes.values())
        }
        self.prefetches = self.schedule.count_old_bytes() > CACHE_BYTES
        self.names: dict[int, Value] = {}  # values per lane
        self.functions: dict[str, str] = {}
        self.calls: Counter[str] = Counter()  # of these functions
        self.repeats = self.schedule.num_loops > COPIES  # the same text in many places
        self.products: dict[tuple[Kind, int, bool], str] = {}  # which of them multiplies
        self.outlined: dict[str, str] = {}  # names of functions by their texts
        # Types of what all of them may read.
        self.common = dict.fromkeys(("%r", "%c", "%unit", "%stride"), "i64")
        self.common |= dict.fromkeys((f"%p{slot}" for slot in program.tables.values()), "ptr")
        self.places: dict[int, Value] = {}  # pointers into scratch memory

    # -- text -------------------------------------------------------------------------------

    def write(self) -> str:
        """The whole module."""
        v = self.v
        body = self._loop_over_candidates()
        head = "\n".join(v.head)
        pointers = "\n".join(self._load_pointer(slot) for slot in self.program.tables.values())
        out = "\n".join(self._load_pointer(slot) for slot in self._outputs())
        functions = "\n".join(self._define(name) for name in self.functions)
        plain = "noinline optnone " if self.schedule.num_loops > MANY_LOOPS else ""
        arguments = "ptr %tables, i64 %first, i64 %last, i64 %rows, i64 %stride, ptr %scratch"
        attributes = 'attributes #0 = { nounwind "prefer-vector-width"="512" '
        attributes += '"min-legal-vector-width"="512" }'
        return f"""\
{functions}
define void @run({arguments}) {plain}#0 {{
entry:
{head}
{pointers}
{out}
  br label %rows_loop
rows_loop:
  %r = phi i64 [ 0, %entry ], [ %r_next, %rows_end ]
{body}
rows_end:
  %r_next = add i64 %r, {self.lanes}
  %r_done = icmp sge i64 %r_next, %rows
  br i1 %r_done, label %end, label %rows_loop
end:
  ret void
}}
{chr(10).join(sorted(v.intrinsics))}
{attributes}
"""

    def _define(self, name: str) -> str:
        """A function; LLVM would copy a short one to every call, and compile all the copies."""
        text = self.functions[name]
        return text.replace(" #0 {", " noinline #0 {", 1) if self.calls[name] > COPIES else text

    def _load_pointer(self, slot: int) -> str:
        return (
            f"  %p{slot}.at = getelementptr ptr, ptr %tables, i64 {slot}\n"
            f"  %p{slot} = load ptr, ptr %p{slot}.at"
        )

    def _outputs(self) -> range:
        first = len(self.program.tables)
        return range(first, first + len(self.program.closings))

    def _loop_over_candidates(self) -> str:
        """What is done with a vector of examples: all candidates, one after the other."""
        v = self.v
        if Units() in self.program.tables:
            place = v.offset(Kind.I64, f"%p{self.program.tables[Units()]}", "%c")
            v.line(f"%unit = load i64, ptr {place}")
        self._compute_lanes(reachable(self.program.exits), 0)
        self.mask = self._find_mask()
        go = v.label("go")
        v.line(f"br i1 {v.any(self.mask)}, label %{go}, label %candidate_end")
        self._finish_lanes(go)
        v.line("br label %candidate_end")
        body = "\n".join(v.body)
        return f"""\
  br label %candidates_loop
candidates_loop:
  %c = phi i64 [ %first, %rows_loop ], [ %c_next, %candidate_end ]
{body}
candidate_end:
  %c_next = add i64 %c, 1
  %c_done = icmp sge i64 %c_next, %last
  br i1 %c_done, label %rows_end, label %candidates_loop"""

    def _finish_lanes(self, label: str) -> None:
        """A block that carries lanes which differ from the base to the end."""
        self.v.block(label)
        self.block = label
        for stage in range(self.schedule.num_stages):
            self._compute_lanes(self.schedule.per_lane[stage], stage)
            for whole in self.schedule.products[stage]:
                if isinstance(whole, Product):
                    self._multiply(whole)
                else:
                    self._concatenate(whole)
            for loop in self.schedule.loops[stage].values():
                self._loop_over_axis(loop)
        for slot, closing in zip(self._outputs(), self.program.closings, strict=True):
            self._add_up(slot, closing.difference)

    def _find_mask(self) -> Value:
        """Lanes that are examples, differ from the base and matter for the loss."""
        v = self.v
        steps = ", ".join(f"i64 {lane}" for lane in range(self.lanes))
        place = v.binary("add", Kind.I64, v.splat("%r", Kind.I64), f"<{steps}>")
        mask = v.compare("icmp slt", Kind.I64, place, v.splat("%rows", Kind.I64))
        if self.program.exits:
            differs = self.names[id(self.program.exits[0])]
            for other in self.program.exits[1:]:
                differs = v.binary("or", Kind.I1, differs, self.names[id(other)])
            mask = v.binary("and", Kind.I1, mask, differs)
        for condition in find_conditions(self.schedule.needed, self.program):
            self._compute_lanes(reachable([condition]), 0)
            mask = v.binary("and", Kind.I1, mask, self.names[id(condition)])
        return mask

    def _compute_lanes(self, exprs: Iterable[Expr], stage: int) -> None:
        for expr in exprs:
            if id(expr) in self.names or expr.domain is not None or expr.stage != stage:
                continue
            if isinstance(expr, Elementwise):
                args = [self.names[id(arg)] for arg in expr.args]
                self.names[id(expr)] = emit_elementwise(self.v, expr, args)
            elif isinstance(expr, Linear):
                self.names[id(expr)] = self._emit_column(expr)
            elif isinstance(expr, Leaf):
                self.names[id(expr)] = emit_leaf(self.v, expr, "0")

    # -- loops over an axis -----------------------------------------------------------------

    def _loop_over_axis(self, loop: Loop) -> None:
        v, exprs = self.v, loop.exprs
        sums = {id(e): start_reduction(v, e) for e in exprs if isinstance(e, Reduced)}
        lists = {
            self.schedule.changes[id(expr)]: expr for expr in exprs if isinstance(expr, Product)
        }
        for listed in lists:
            v.line(f"store i64 0, ptr {self.counts[listed]}")
        label, after = v.label("axis"), v.label("after")
        j, following, begin = v.name(), v.name(), len(v.body)
        v.line(f"br label %{label}")
        v.block(label)
        v.body.append(f"  {j} = phi i64 [ 0, %{self.block} ], [ {following}, %{label} ]")
        size = self._choose_step(loop)
        indices = [j, *(v.let(f"add i64 {j}, {more}") for more in range(1, size))]
        known: list[dict[int, Value]] = [{} for _ in indices]
        for expr in exprs:
            for index, local in zip(indices, known, strict=True):
                if isinstance(expr, Reduced):
                    new = self._evaluate(expr.args[0], loop, local, index)
                    chosen = self.names[id(expr.args[1])] if isinstance(expr, Pick) else None
                    reduce_by(v, expr, sums[id(expr)], new, index, chosen)
                elif isinstance(expr, Product):
                    if lists[self.schedule.changes[id(expr)]] is expr:  # once for all of them
                        change = self._evaluate(expr.args[0], loop, local, index)
                        self._list_change(expr, change, index)
                    if self.prefetches:
                        self._prefetch(expr, loop.domain, index)
                else:
                    value = self._evaluate(expr, loop, local, index)
                    if id(expr) in self.schedule.places:
                        self._store(expr, value, index)
        v.line(f"{following} = add i64 {j}, {size}")
        done = v.let(f"icmp eq i64 {following}, {loop.domain}")
        v.line(f"br i1 {done}, label %{after}, label %{label}")
        if self.repeats:
            self._outline(
                begin,
                after,
                loop,
                [*chain(*sums.values()), *(self.counts[listed] for listed in lists)],
            )
        v.block(after)
        self.block = after
        for expr in exprs:
            if id(expr) in sums:
                variable = sums[id(expr)][-1]
                self.names[id(expr)] = v.let(f"load {v.type(expr.kind)}, ptr {variable}")

    def _choose_step(self, loop: Loop) -> int:
        """How many indices are computed side by side: while one waits, another goes on.

        A neuron's time steps wait for each other; neurons do not.
        """
        chain = sum(isinstance(expr, Product) for expr in loop.exprs)
        return 2 if 1 < chain <= MANY_STEPS and loop.domain % 2 == 0 else 1

    # -- what stands in many places ---------------------------------------------------------

    def _outline(self, begin: int, after: str, loop: Loop, variables: Iterable[Value]) -> None:
        """Put a call into the place of a loop's text."""
        v = self.v
        types = dict.fromkeys(self.places.values(), "ptr") | dict.fromkeys(variables, "ptr noalias")
        types[self.mask] = v.type(Kind.I1)
        if v.packed:
            types[v.packed.examples] = v.type(Kind.I32)
            types[v.packed.candidates] = v.type(Kind.I64)
        for arg in chain.from_iterable(expr.args for expr in loop.exprs):
            if id(arg) in self.names:
                types[self.names[id(arg)]] = v.type(arg.kind)
        known = ChainMap(types, self.common)
        made = outline_loop(v.body[begin:], self.block, after, known)
        del v.body[begin:]
        v.line(self._call(made, known))
        v.line(f"br label %{after}")

    def _emit_column(self, expr: Linear) -> Value:
        """A new column; what computes it stands there for every time step."""
        v, begin = self.v, len(self.v.body)
        found = emit_leaf(v, expr, "0")
        if not self.repeats:
            return found
        made = outline_value(v.body[begin:], found, v.type(expr.kind), self.common)
        del v.body[begin:]
        return v.let(self._call(made, self.common))

    def _call(self, made: Outlined, types: Mapping[Value, str]) -> str:
        name = self.outlined.setdefault(made.text, f"@part{len(self.outlined)}")
        self.functions[name] = f"define internal {made.result} {name}{made.text}"
        self.calls[name] += 1
        given = (
            f"{types[one]} {self._point_to_table(int(one[2:])) if one[:2] == '%p' else one}"
            for one in made.outside
        )
        return f"call {made.result} {name}({', '.join(given)})"

    def _point_to_table(self, slot: int) -> Value:
        """A table; thousands of pointers are not kept from the beginning on, but loaded again."""
        if not self.repeats:
            return f"%p{slot}"
        v = self.v
        return v.let(f"load ptr, ptr {v.let(f'getelementptr ptr, ptr %tables, i64 {slot}')}")

    def _point_to(self, place: int) -> Value:
        """A pointer into scratch memory; for texts that stand in many places, a name for it."""
        if not self.repeats:
            return self.v.let(f"getelementptr i8, ptr %scratch, i64 {place}")
        if place not in self.places:
            self.places[place] = f"%s{place}"
            self.v.head.append(f"  %s{place} = getelementptr i8, ptr %scratch, i64 {place}")
        return self.places[place]

    def _evaluate(self, expr: Expr, loop: Loop, local: dict[int, Value], j: Value) -> Value:
        """An expression at index j: computed, kept from an earlier loop, or read."""
        if expr.domain is None:
            return self.names[id(expr)]
        if id(expr) in local:
            return local[id(expr)]
        v = self.v
        if isinstance(expr, Leaf):
            found = emit_leaf(v, expr, j)
        elif isinstance(expr, Product | Concat) or self.schedule.loop_of[id(expr)] is not loop:
            found = v.load(expr.kind, self._find_address(expr, j), expr.kind.num_bytes)
        elif isinstance(expr, Lookup):
            found = self._look_up(expr, j)
        else:
            assert isinstance(expr, Elementwise)  # a reduction has no domain
            args = [self._evaluate(arg, loop, local, j) for arg in expr.args]
            found = emit_elementwise(v, expr, args)
        local[id(expr)] = found
        return found

    def _find_address(self, expr: Expr, j: Value) -> Value:
        v = self.v
        bytes_in = v.let(f"mul i64 {j}, {self.lanes * expr.kind.num_bytes}")
        start = self._point_to(self.schedule.places[id(expr)])
        return v.let(f"getelementptr i8, ptr {start}, i64 {bytes_in}")

    def _store(self, expr: Expr, value: Value, j: Value) -> None:
        v = self.v
        if expr.kind is Kind.I1:
            byte = f"<{self.lanes} x i8>"
            wide = v.let(f"zext {v.type(Kind.I1)} {value} to {byte}")
            v.line(f"store {byte} {wide}, ptr {self._find_address(expr, j)}, align 1")
        else:
            v.store(expr.kind, value, self._find_address(expr, j), expr.kind.num_bytes)

    def _look_up(self, expr: Lookup, j: Value) -> Value:
        """table[index, j] per lane."""
        v = self.v
        index = self.names[id(expr.args[0])]
        start = v.binary("mul", Kind.I64, index, v.constant(expr.domain or 1, Kind.I64))
        place = v.binary("add", Kind.I64, start, v.splat(j, Kind.I64))
        return gather(v, expr.kind, f"%p{expr.table}", place, self.mask)

    # -- products ---------------------------------------------------------------------------

    def _list_change(self, expr: Product, change: Value, j: Value) -> None:
        """Append what differs at j in some lane that continues."""
        v = self.v
        changes = self.schedule.changes[id(expr)]
        count = self.counts[changes]
        n = v.let(f"load i64, ptr {count}")
        differs = v.compare("fcmp une", expr.kind, change, v.constant(0.0, expr.kind))
        some = v.any(v.binary("and", Kind.I1, differs, self.mask))
        at = v.let(f"mul i64 {n}, {self.lanes * expr.kind.num_bytes}")
        start = self._point_to(changes.vectors)
        v.store(expr.kind, change, v.let(f"getelementptr i8, ptr {start}, i64 {at}"), 4)
        v.line(f"store i64 {j}, ptr {v.offset(Kind.I64, self._point_to(changes.indices), n)}")
        more = v.let(f"zext i1 {some} to i64")
        v.line(f"store i64 {v.let(f'add i64 {n}, {more}')}, ptr {count}")

    def _prefetch(self, expr: Product, domain: int, j: Value) -> None:
        """Ask for the old values of a product, a few with every change that is listed for it."""
        v = self.v
        v.intrinsics.add("declare void @llvm.prefetch.p0(ptr, i32, i32, i32)")
        for first in range(0, expr.domain or 1, domain):
            line = v.let(f"mul i64 {v.let(f'add i64 {j}, {first}')}, %stride")
            place = v.offset(expr.kind, f"%p{expr.base}", v.let(f"add i64 {line}, %r"))
            v.line(f"call void @llvm.prefetch.p0(ptr {place}, i32 0, i32 2, i32 1)")

    def _multiply(self, expr: Product) -> None:
        """A product, unless nothing looks at it in these examples."""
        v = self.v
        skip, guard = v.label("skip"), self.schedule.guards.get(id(expr))
        if guard is not None:
            here = v.binary("and", Kind.I1, self.names[id(guard)], self.mask)
            go = v.label("some")
            v.line(f"br i1 {v.any(here)}, label %{go}, label %{skip}")
            v.block(go)
            self.block = go
        if id(expr) in self.schedule.private:
            self._loop_over_axis(self.schedule.private[id(expr)])
        self._call_product(expr)
        v.line(f"br label %{skip}")
        v.block(skip)
        self.block = skip

    def _find_product(self, kind: Kind, num: int) -> str:
        """The name of a function, written at its first call."""
        packed = self.v.packed is not None
        if (kind, num, packed) not in self.products:
            name, text, intrinsics = define_product(self.lanes, kind, num, packed)
            self.functions[name] = text
            self.v.intrinsics |= intrinsics
            self.products[kind, num, packed] = name
        self.calls[self.products[kind, num, packed]] += 1
        return self.products[kind, num, packed]

    def _call_product(self, expr: Product) -> None:
        v = self.v
        changes = self.schedule.changes[id(expr)]
        name = self._find_product(expr.kind, expr.domain or 1)
        n = v.let(f"load i64, ptr {self.counts[changes]}")
        places = (changes.indices, changes.vectors, self.schedule.places[id(expr)])
        listed, vectors, out = map(self._point_to, places)
        base, weight = map(self._point_to_table, (expr.base, expr.weight))
        start = v.offset(expr.kind, base, "%r")
        arguments = f"i64 {n}, ptr {listed}, ptr {vectors}, ptr {weight}"
        arguments += f", ptr {start}, i64 %stride, ptr {out}"
        if v.packed:
            arguments += f", {v.type(Kind.I32)} {v.packed.examples}"
        v.line(f"call void {name}({arguments})")
        if len(expr.args) > 1:
            self._add_at_unit(expr, out)

    def _add_at_unit(self, expr: Product, out: Value) -> None:
        """Add the second argument of a product at the candidate's unit, if that is one of its."""
        v, kind, units = self.v, expr.kind, expr.units
        place = v.let(f"sub i64 %unit, {units.start}")
        inside = v.let(f"icmp ult i64 {v.let(f'udiv i64 {place}, {units.step}')}, {units.size}")
        if units.step != 1:
            one = v.let(f"icmp eq i64 {v.let(f'urem i64 {place}, {units.step}')}, 0")
            inside = v.let(f"and i1 {inside}, {one}")
            place = v.let(f"udiv i64 {place}, {units.step}")
        here, after = v.label("unit"), v.label("added")
        v.line(f"br i1 {inside}, label %{here}, label %{after}")
        v.block(here)
        at = v.let(f"getelementptr {v.type(kind)}, ptr {out}, i64 {place}")
        total = v.binary("fadd", kind, v.load(kind, at, 4), self.names[id(expr.args[1])])
        v.store(kind, total, at, 4)
        v.line(f"br label %{after}")
        v.block(after)
        self.block = after

    # -- several axes as one --------------------------------------------------------------------

    def _concatenate(self, expr: Concat) -> None:
        """Copy parts to where they stand one after the other."""
        v, start = self.v, 0
        for part in expr.args:
            assert part.domain is not None
            label, after = v.label("copy"), v.label("copied")
            j, following = v.name(), v.name()
            v.line(f"br label %{label}")
            v.block(label)
            v.body.append(f"  {j} = phi i64 [ 0, %{self.block} ], [ {following}, %{label} ]")
            if isinstance(part, Leaf):
                value = emit_leaf(v, part, j)
            else:
                value = v.load(part.kind, self._find_address(part, j), part.kind.num_bytes)
            self._store(expr, value, v.let(f"add i64 {j}, {start}"))
            v.line(f"{following} = add i64 {j}, 1")
            done = v.let(f"icmp eq i64 {following}, {part.domain}")
            v.line(f"br i1 {done}, label %{after}, label %{label}")
            v.block(after)
            self.block = after
            start += part.domain

    def _add_up(self, slot: int, difference: Expr) -> None:
        """Add the lanes' differences to the candidate's sum."""
        v = self.v
        value = v.select(self.mask, Kind.F64, self.names[id(difference)], v.constant(0.0, Kind.F64))
        typ = v.type(Kind.F64)
        name = f"@llvm.vector.reduce.fadd.v{self.lanes}f64"
        v.intrinsics.add(f"declare double {name}(double, {typ})")
        total = v.let(f"call reassoc double {name}(double -0.0, {typ} {value})")
        place = v.offset(Kind.F64, f"%p{slot}", "%c")
        before = v.let(f"load double, ptr {place}")
        v.line(f"store double {v.let(f'fadd double {before}, {total}')}, ptr {place}")


def _reads_doubles(expr: Expr) -> bool:
    return isinstance(expr, Read) and expr.access is Access.AXIS_LANE and expr.kind is Kind.F64
