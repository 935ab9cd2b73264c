"""A kernel while it is written: what has a name, where numbers stand, which functions there are."""

from collections import Counter
from collections.abc import Mapping

from hardstep.evaluation.fused.emit_vectors import Value, Vectors
from hardstep.evaluation.fused.expressions import Access, Expr, Kind, Read
from hardstep.evaluation.fused.outline import Outlined
from hardstep.evaluation.fused.schedule import Schedule
from hardstep.evaluation.fused.translate import Program

CACHE_BYTES = 256 << 10  # of old values that stay near while a candidate is evaluated
COPIES = 8  # of a function; loops over time call one at every step


class Draft:
    """The text of a kernel as far as it is written, and what the rest of it may refer to."""

    mask: Value  # lanes that continue
    block: str  # the label of the block that is being written

    def __init__(self, program: Program) -> None:
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

    # -- where numbers stand ----------------------------------------------------------------

    def point_to_table(self, slot: int) -> Value:
        """A table; thousands of pointers are not kept from the beginning on, but loaded again."""
        if not self.repeats:
            return f"%p{slot}"
        v = self.v
        return v.let(f"load ptr, ptr {v.let(f'getelementptr ptr, ptr %tables, i64 {slot}')}")

    def point_to(self, place: int) -> Value:
        """A pointer into scratch memory; for texts that stand in many places, a name for it."""
        if not self.repeats:
            return self.v.let(f"getelementptr i8, ptr %scratch, i64 {place}")
        if place not in self.places:
            self.places[place] = f"%s{place}"
            self.v.head.append(f"  %s{place} = getelementptr i8, ptr %scratch, i64 {place}")
        return self.places[place]

    def find_address(self, expr: Expr, j: Value) -> Value:
        """Where an expression that outlives its loop stands at index j."""
        v = self.v
        bytes_in = v.let(f"mul i64 {j}, {self.lanes * expr.kind.num_bytes}")
        start = self.point_to(self.schedule.places[id(expr)])
        return v.let(f"getelementptr i8, ptr {start}, i64 {bytes_in}")

    def store(self, expr: Expr, value: Value, j: Value) -> None:
        """Keep an expression's lanes at index j; truth values are bytes there."""
        v = self.v
        if expr.kind is Kind.I1:
            byte = f"<{self.lanes} x i8>"
            wide = v.let(f"zext {v.type(Kind.I1)} {value} to {byte}")
            v.line(f"store {byte} {wide}, ptr {self.find_address(expr, j)}, align 1")
        else:
            v.store(expr.kind, value, self.find_address(expr, j), expr.kind.num_bytes)

    # -- functions --------------------------------------------------------------------------

    def call(self, made: Outlined, types: Mapping[Value, str]) -> str:
        """A call of a function, whose text is kept once."""
        name = self.outlined.setdefault(made.text, f"@part{len(self.outlined)}")
        self.functions[name] = f"define internal {made.result} {name}{made.text}"
        self.calls[name] += 1
        given = (
            f"{types[one]} {self.point_to_table(int(one[2:])) if one[:2] == '%p' else one}"
            for one in made.outside
        )
        return f"call {made.result} {name}({', '.join(given)})"

    def define_functions(self) -> str:
        """The text of all functions."""
        return "\n".join(self._define(name) for name in self.functions)

    def _define(self, name: str) -> str:
        """A function; LLVM would copy a short one to every call, and compile all the copies."""
        text = self.functions[name]
        return text.replace(" #0 {", " noinline #0 {", 1) if self.calls[name] > COPIES else text


def _reads_doubles(expr: Expr) -> bool:
    return isinstance(expr, Read) and expr.access is Access.AXIS_LANE and expr.kind is Kind.F64
