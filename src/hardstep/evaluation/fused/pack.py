"""Kernels that pack: no lane of what is expensive is spent on an example that does not change.

    for a vector of examples
        for a group of candidates                of one unit, as many as there is room for
            columns of every candidate; list the lanes that differ from the base
            for a vector of listed lanes         of whichever candidates
                stage by stage, as without packing
                add the differences of the loss to the candidates' sums

A candidate changes the column of a third to a half of the examples (those on one side of a ReLU,
or at the edge of a step), and 16 neighbors nearly always have one of them.
"""

from collections.abc import Callable

from hardstep.evaluation.fused.emit import KernelWriter
from hardstep.evaluation.fused.emit_vectors import Packed, Value, can_rearrange, gather
from hardstep.evaluation.fused.expressions import Constant, Expr, Kind
from hardstep.evaluation.fused.schedule import is_column, reachable
from hardstep.evaluation.fused.tables import Units
from hardstep.evaluation.fused.translate import Program

GROUP = 64  # candidates whose lanes are listed together


# A group: scan its candidates, pack what they listed, finish their sums. `%n` is the longer list's.
_FRAME = """\
  br label %group
group:
  %c0 = phi i64 [ %first, %rows_loop ], [ %c_next, %group_end ]
  %unit_at = getelementptr i64, ptr {units}, i64 %c0
  %unit = load i64, ptr %unit_at
  store i64 0, ptr {low}
  store i64 0, ptr {high}
  br label %scan
scan:
  %c = phi i64 [ %c0, %group ], [ %c_next, %scan_end ]
  %local = sub i64 %c, %c0
{scan}
  br label %scan_end
scan_end:
  %c_next = add i64 %c, 1
  %c_done = icmp sge i64 %c_next, %last
  %size = add i64 %local, 1
  %full = icmp eq i64 %size, {most}
  %following = select i1 %c_done, i64 %c, i64 %c_next
  %unit_next_at = getelementptr i64, ptr {units}, i64 %following
  %unit_next = load i64, ptr %unit_next_at
  %other = icmp ne i64 %unit_next, %unit
  %enough = or i1 %full, %other
  %stop = or i1 %enough, %c_done
  br i1 %stop, label %listed, label %scan
listed:
  %low = load i64, ptr {low}
  %high = load i64, ptr {high}
  %more = icmp sgt i64 %low, %high
  %n = select i1 %more, i64 %low, i64 %high
  %nothing = icmp eq i64 %n, 0
  br i1 %nothing, label %group_end, label %pack
pack:
  %k = phi i64 [ 0, %listed ], [ %k_next, %pack_end ]
{pack}
  br label %pack_end
pack_end:
  %k_next = add i64 %k, {half}
  %k_done = icmp sge i64 %k_next, %n
  br i1 %k_done, label %finish, label %pack
finish:
  %f = phi i64 [ 0, %pack_end ], [ %f_next, %finish ]
{finish}
  %f_next = add i64 %f, 1
  %f_done = icmp eq i64 %f_next, %size
  br i1 %f_done, label %group_end, label %finish
group_end:
  br i1 %c_done, label %rows_end, label %group"""


def choose_writer(program: Program) -> KernelWriter:
    """One that packs, where that pays."""
    return PackedKernelWriter(program) if _packing_pays(program) else KernelWriter(program)


def _packing_pays(program: Program) -> bool:
    """Whether some examples may not change, and registers are rearranged in no time."""
    columns = Units() in program.tables and bool(program.exits)
    # Where a column counts as it is, there is no example that it does not change.
    as_it_is = any(is_column(arg) for differs in program.exits for arg in differs.args)
    always = any(isinstance(differs, Constant) for differs in program.exits)
    return columns and not as_it_is and not always and can_rearrange()


class PackedKernelWriter(KernelWriter):
    """Writes the kernel of a program whose candidates change one unit.

    Examples of the lower and of the upper half of a vector have their own list and sums: a
    register of eight is rearranged by one instruction, and a candidate's lanes are added up in the
    order of examples, whatever candidates it is packed with.
    """

    def __init__(self, program: Program) -> None:
        super().__init__(program)
        self.half = self.lanes // 2
        self.sources = [expr for expr in self.schedule.needed if is_column(expr)]
        room, lists = self.schedule.reserve, (GROUP + 1) * self.half * 4
        self.columns = [room(GROUP * self.lanes * expr.kind.num_bytes) for expr in self.sources]
        self.lists = room(lists), room(lists)
        self.sums = [room(2 * GROUP * 8) for _ in program.closings]
        self.listed = [self.v.variable(Kind.I64, scalar=True) for _ in self.lists]

    def _loop_over_candidates(self) -> str:
        low, high = self.listed
        scan = self._record(self._scan)
        self.d.names.clear()  # of lanes side by side
        pack = self._record(self._pack)
        finish = self._record(self._finish)
        return _FRAME.format(
            units=f"%p{self.program.tables[Units()]}", low=low, high=high, most=GROUP,
            half=self.half, scan=scan, pack=pack, finish=finish,
        )  # fmt: skip

    def _record(self, write: Callable[[], None]) -> str:
        self.v.body = []
        write()
        return "\n".join(self.v.body)

    # -- listing --------------------------------------------------------------------------------

    def _scan(self) -> None:
        """Columns of a candidate, side by side; the lanes that differ go on the lists."""
        v = self.v
        self._compute_lanes(reachable([*self.program.exits, *self.sources]), 0)
        self.d.mask = self._find_mask()
        start = v.let(f"mul i64 %local, {self.lanes}")
        for source, place in zip(self.sources, self.columns, strict=True):
            at = v.offset(source.kind, self.d.point_to(place), start)
            v.store(source.kind, self.d.names[id(source)], at, source.kind.num_bytes)
        for place in self.sums:
            for half in (0, 1):
                at = v.offset(Kind.F64, self.d.point_to(place), self._find_sum("%local", half))
                v.line(f"store double 0.0, ptr {at}")
        every = v.let(f"bitcast {v.type(Kind.I1)} {self.d.mask} to i{self.lanes}")
        for half in (0, 1):
            moved = v.let(f"lshr i{self.lanes} {every}, {half * self.half}")
            bits = v.let(f"trunc i{self.lanes} {moved} to i{self.half}")
            self._append(half, bits, v.let(f"add i64 {start}, {half * self.half}"))

    def _append(self, half: int, bits: Value, start: Value) -> None:
        """Append the places of the bits that are set."""
        v, integer, count = self.v, f"i{self.half}", self.listed[half]
        v.intrinsics.add(f"declare {integer} @llvm.cttz.{integer}({integer}, i1)")
        before, loop, after = v.label("before"), v.label("list"), v.label("after")
        left, at = v.name(), v.name()
        left_next, at_next = f"{left}.next", f"{at}.next"
        place = v.let(f"load i64, ptr {count}")
        none = v.let(f"icmp eq {integer} {bits}, 0")
        v.line(f"br label %{before}")
        v.block(before)
        v.line(f"br i1 {none}, label %{after}, label %{loop}")
        v.block(loop)
        v.line(f"{left} = phi {integer} [ {bits}, %{before} ], [ {left_next}, %{loop} ]")
        v.line(f"{at} = phi i64 [ {place}, %{before} ], [ {at_next}, %{loop} ]")
        lane = v.let(f"call {integer} @llvm.cttz.{integer}({integer} {left}, i1 true)")
        number = v.let(f"add i64 {start}, {v.let(f'zext {integer} {lane} to i64')}")
        address = v.offset(Kind.I32, self.d.point_to(self.lists[half]), at)
        v.line(f"store i32 {v.let(f'trunc i64 {number} to i32')}, ptr {address}")
        v.line(f"{at_next} = add i64 {at}, 1")
        v.line(f"store i64 {at_next}, ptr {count}")
        v.line(f"{left_next} = and {integer} {left}, {v.let(f'sub {integer} {left}, 1')}")
        done = v.let(f"icmp eq {integer} {left_next}, 0")
        v.line(f"br i1 {done}, label %{after}, label %{loop}")
        v.block(after)

    def _find_sum(self, local: Value, half: int) -> Value:
        """Where a candidate of the group adds up the examples of a half."""
        return self.v.let(f"add i64 {local}, {half * GROUP}")

    # -- packed vectors -------------------------------------------------------------------------

    def _pack(self) -> None:
        """A vector of listed lanes; where a list is over, some lane that does not count."""
        v = self.v
        indices = list(range(self.half))
        steps = ", ".join(f"i64 {lane}" for lane in indices * 2)
        place = v.binary("add", Kind.I64, v.splat("%k", Kind.I64), f"<{steps}>")
        ends = self._join(Kind.I64, *(self._splat_half(end) for end in ("%low", "%high")))
        self.d.mask = v.compare("icmp slt", Kind.I64, place, ends)
        part = f"<{self.half} x i32>"
        loaded = []
        for place_of in self.lists:
            at = v.offset(Kind.I32, self.d.point_to(place_of), "%k")
            loaded.append(v.let(f"load {part}, ptr {at}, align 4"))
        numbers = self._join(Kind.I32, *loaded)
        rest = ", ".join(f"i32 {self.half * half}" for half in (0, 1) for _ in indices)
        numbers = v.select(self.d.mask, Kind.I32, numbers, f"<{rest}>")
        self._take_apart(numbers)
        v.line("br label %go")
        self._finish_lanes("go")

    def _splat_half(self, scalar: Value) -> Value:
        v, typ = self.v, f"<{self.half} x i64>"
        first = v.let(f"insertelement {typ} poison, i64 {scalar}, i64 0")
        mask = f"<{self.half} x i32> zeroinitializer"
        return v.let(f"shufflevector {typ} {first}, {typ} poison, {mask}")

    def _join(self, kind: Kind, low: Value, high: Value) -> Value:
        typ = f"<{self.half} x {kind.element}>"
        order = ", ".join(f"i32 {lane}" for lane in range(self.lanes))
        return self.v.let(
            f"shufflevector {typ} {low}, {typ} {high}, <{self.lanes} x i32> <{order}>"
        )

    def _take_apart(self, numbers: Value) -> None:
        """A listed lane's number: its candidate's in the group, times lanes, plus its example's."""
        v = self.v
        examples = v.binary("and", Kind.I32, numbers, v.constant(self.lanes - 1, Kind.I32))
        wide = v.convert("zext", numbers, Kind.I32, Kind.I64)
        shift = v.constant(self.lanes.bit_length() - 1, Kind.I64)
        self.local = v.binary("lshr", Kind.I64, wide, shift)
        candidates = v.binary("add", Kind.I64, self.local, v.splat("%c0", Kind.I64))
        every = v.constant(True, Kind.I1)
        for source, place in zip(self.sources, self.columns, strict=True):
            found = gather(v, source.kind, self.d.point_to(place), wide, every)
            self.d.names[id(source)] = found
        v.packed = Packed(examples, candidates)

    def _add_up(self, slot: int, difference: Expr) -> None:
        """Add every lane's difference to its candidate's sum over that half of the examples."""
        v, new = self.v, self.d.names[id(difference)]
        value = v.select(self.d.mask, Kind.F64, new, v.constant(0.0, Kind.F64))
        sums = self.d.point_to(self.sums[slot - self._outputs()[0]])
        for lane in range(self.lanes):
            local = v.let(f"extractelement {v.type(Kind.I64)} {self.local}, i64 {lane}")
            at = v.offset(Kind.F64, sums, self._find_sum(local, lane // self.half))
            more = v.let(f"extractelement {v.type(Kind.F64)} {value}, i64 {lane}")
            total = v.let(f"fadd double {v.let(f'load double, ptr {at}')}, {more}")
            v.line(f"store double {total}, ptr {at}")

    def _finish(self) -> None:
        """What the examples of this vector add to a candidate of the group."""
        v = self.v
        candidate = v.let("add i64 %c0, %f")
        for slot, place in zip(self._outputs(), self.sums, strict=True):
            low, high = (
                v.let(f"load double, ptr {v.offset(Kind.F64, self.d.point_to(place), at)}")
                for at in (self._find_sum("%f", 0), self._find_sum("%f", 1))
            )
            at = v.offset(Kind.F64, f"%p{slot}", candidate)
            more = v.let(f"fadd double {low}, {high}")
            total = v.let(f"fadd double {v.let(f'load double, ptr {at}')}, {more}")
            v.line(f"store double {total}, ptr {at}")
