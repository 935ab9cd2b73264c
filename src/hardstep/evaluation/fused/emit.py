"""From expressions to one LLVM function: loops over examples and candidates, stage by stage.

    for a vector of examples                tables of these examples stay in the first cache
        for a candidate
            columns; go on only if a lane differs from the base
            stage by stage: values per lane, products, loops over axes
            add the differences of the loss to the candidate's sum

In the text, `%rows` is the number of examples.
"""

from collections.abc import Iterable

from hardstep.evaluation.fused.emit_changes import call_product
from hardstep.evaluation.fused.emit_draft import Draft
from hardstep.evaluation.fused.emit_expressions import emit_elementwise, emit_leaf
from hardstep.evaluation.fused.emit_loops import emit_concat, emit_loop
from hardstep.evaluation.fused.emit_vectors import Value
from hardstep.evaluation.fused.expressions import Elementwise, Expr, Kind, Leaf, Linear, Product
from hardstep.evaluation.fused.outline import outline_value
from hardstep.evaluation.fused.schedule import find_conditions, reachable
from hardstep.evaluation.fused.tables import Units
from hardstep.evaluation.fused.translate import Program

MANY_LOOPS = 128  # beyond that, compiling what calls them well takes longer than it saves


class KernelWriter:
    """Writes the kernel of one program."""

    def __init__(self, program: Program) -> None:
        self.program, self.d = program, Draft(program)
        self.v, self.schedule, self.lanes = self.d.v, self.d.schedule, self.d.lanes

    def write(self) -> str:
        """The whole module."""
        v = self.v
        body = self._loop_over_candidates()
        head = "\n".join(v.head)
        pointers = "\n".join(self._load_pointer(slot) for slot in self.program.tables.values())
        out = "\n".join(self._load_pointer(slot) for slot in self._outputs())
        functions = self.d.define_functions()
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
        self.d.mask = self._find_mask()
        go = v.label("go")
        v.line(f"br i1 {v.any(self.d.mask)}, label %{go}, label %candidate_end")
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
        self.d.block = label
        for stage in range(self.schedule.num_stages):
            self._compute_lanes(self.schedule.per_lane[stage], stage)
            for whole in self.schedule.products[stage]:
                if isinstance(whole, Product):
                    self._multiply(whole)
                else:
                    emit_concat(self.d, whole)
            for loop in self.schedule.loops[stage].values():
                emit_loop(self.d, loop)
        for slot, closing in zip(self._outputs(), self.program.closings, strict=True):
            self._add_up(slot, closing.difference)

    def _find_mask(self) -> Value:
        """Lanes that are examples, differ from the base and matter for the loss."""
        v, names = self.v, self.d.names
        steps = ", ".join(f"i64 {lane}" for lane in range(self.lanes))
        place = v.binary("add", Kind.I64, v.splat("%r", Kind.I64), f"<{steps}>")
        mask = v.compare("icmp slt", Kind.I64, place, v.splat("%rows", Kind.I64))
        if self.program.exits:
            differs = names[id(self.program.exits[0])]
            for other in self.program.exits[1:]:
                differs = v.binary("or", Kind.I1, differs, names[id(other)])
            mask = v.binary("and", Kind.I1, mask, differs)
        for condition in find_conditions(self.schedule.needed, self.program):
            self._compute_lanes(reachable([condition]), 0)
            mask = v.binary("and", Kind.I1, mask, names[id(condition)])
        return mask

    def _compute_lanes(self, exprs: Iterable[Expr], stage: int) -> None:
        names = self.d.names
        for expr in exprs:
            if id(expr) in names or expr.domain is not None or expr.stage != stage:
                continue
            if isinstance(expr, Elementwise):
                args = [names[id(arg)] for arg in expr.args]
                names[id(expr)] = emit_elementwise(self.v, expr, args)
            elif isinstance(expr, Linear):
                names[id(expr)] = self._emit_column(expr)
            elif isinstance(expr, Leaf):
                names[id(expr)] = emit_leaf(self.v, expr, "0")

    def _emit_column(self, expr: Linear) -> Value:
        """A new column; what computes it stands there for every time step."""
        v, begin = self.v, len(self.v.body)
        found = emit_leaf(v, expr, "0")
        if not self.d.repeats:
            return found
        made = outline_value(v.body[begin:], found, v.type(expr.kind), self.d.common)
        del v.body[begin:]
        return v.let(self.d.call(made, self.d.common))

    def _multiply(self, expr: Product) -> None:
        """A product, unless nothing looks at it in these examples."""
        d, v = self.d, self.v
        skip, guard = v.label("skip"), self.schedule.guards.get(id(expr))
        if guard is not None:
            here = v.binary("and", Kind.I1, d.names[id(guard)], d.mask)
            go = v.label("some")
            v.line(f"br i1 {v.any(here)}, label %{go}, label %{skip}")
            v.block(go)
            d.block = go
        if id(expr) in self.schedule.private:
            emit_loop(d, self.schedule.private[id(expr)])
        call_product(d, expr)
        v.line(f"br label %{skip}")
        v.block(skip)
        d.block = skip

    def _add_up(self, slot: int, difference: Expr) -> None:
        """Add the lanes' differences to the candidate's sum."""
        v, new = self.v, self.d.names[id(difference)]
        value = v.select(self.d.mask, Kind.F64, new, v.constant(0.0, Kind.F64))
        typ = v.type(Kind.F64)
        name = f"@llvm.vector.reduce.fadd.v{self.lanes}f64"
        v.intrinsics.add(f"declare double {name}(double, {typ})")
        total = v.let(f"call reassoc double {name}(double -0.0, {typ} {value})")
        place = v.offset(Kind.F64, f"%p{slot}", "%c")
        before = v.let(f"load double, ptr {place}")
        v.line(f"store double {v.let(f'fadd double {before}, {total}')}, ptr {place}")
