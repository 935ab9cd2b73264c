"""What a fused kernel computes: the kinds of expressions over lanes.

A kernel treats a few examples at once, one per lane. An expression has one value per lane, and,
if it has a domain, per index j of an axis of that size (a layer's units). Expressions with a
domain are computed in loops over j; reductions and products need a whole loop behind them, so
every expression has a stage: loops of one stage run before those of the next.
"""

from dataclasses import dataclass
from enum import Enum, auto

import torch

Number = float | int  # truth values are integers


class Unfusable(Exception):
    """The fused path does not cover this; the message says what."""


class Closed(Enum):
    """All there is of something. Hashed by identity, which is quicker than by name."""

    __hash__ = object.__hash__


class Kind(Closed):
    """A type of numbers: our name and LLVM's names, in a register and in memory."""

    F32 = "f32", "float", "float", 4
    F64 = "f64", "double", "double", 8
    I1 = "i1", "i1", "i8", 1
    I32 = "i32", "i32", "i32", 4  # places within a vector; no expression has it
    I64 = "i64", "i64", "i64", 8

    def __init__(self, label: str, element: str, stored: str, num_bytes: int) -> None:
        self.label, self.element, self.stored, self.num_bytes = label, element, stored, num_bytes
        self.is_float = label.startswith("f")

    def __str__(self) -> str:
        return self.label


KINDS = {
    torch.float32: Kind.F32,
    torch.float64: Kind.F64,
    torch.bool: Kind.I1,
    torch.int64: Kind.I64,
}


class Fn(Closed):
    """A function of single numbers. Its value is its name in messages."""

    ADD = "add"
    SUB = "sub"
    MUL = "mul"
    DIV = "div"
    MOD = "mod"
    MAX = "max"
    MIN = "min"
    NEG = "neg"
    ABS = "abs"
    FLOOR = "floor"
    CEIL = "ceil"
    TRUNC = "trunc"
    RINT = "rint"
    SQRT = "sqrt"
    EXP = "exp"
    EXPM1 = "expm1"
    LOG = "log"
    SIGMOID = "sigmoid"
    TANH = "tanh"
    LT = "lt"
    LE = "le"
    GT = "gt"
    GE = "ge"
    EQ = "eq"
    NE = "ne"
    AND = "and"
    OR = "or"
    XOR = "xor"
    NOT = "not"


COMPARISONS = frozenset((Fn.LT, Fn.LE, Fn.GT, Fn.GE, Fn.EQ, Fn.NE))


class Reduction(Closed):
    """What is made of all values along an axis. Its value is its name in messages."""

    TOTAL = "total"
    MAX = "amax"
    MIN = "amin"
    ARGMAX = "argmax"
    ARGMIN = "argmin"


class Access(Closed):
    """Which number of a table a lane reads, at index j if the reading has a domain."""

    FIRST = auto()  # table[0]
    UNIT = auto()  # table[the candidate's unit]
    AXIS = auto()  # table[j]
    UNIT_AXIS = auto()  # table[the candidate's unit, j]
    CANDIDATE_AXIS = auto()  # table[candidate, j], or table[candidate]
    LANE = auto()  # table[example]
    UNIT_LANE = auto()  # table[the candidate's unit, example]
    AXIS_LANE = auto()  # table[j, example]
    CANDIDATE_LANE = auto()  # table[candidate, example]


@dataclass(frozen=True, eq=False, slots=True)
class _Value:
    kind: Kind
    domain: int | None  # size of the axis j runs over, or nothing for a value per lane
    stage: int
    args: tuple["Expr", ...]

    @property
    def is_leaf(self) -> bool:
        """Whether it reads a table or a constant."""
        return not self.args


# -- leaves: they have no arguments; tables are known by their numbers in a program ----------------


@dataclass(frozen=True, eq=False, slots=True)
class Constant(_Value):
    """A number."""

    value: Number


@dataclass(frozen=True, eq=False, slots=True)
class Read(_Value):
    """A number of a table."""

    access: Access
    table: int


@dataclass(frozen=True, eq=False, slots=True)
class Unit(_Value):
    """The unit that the candidate changes."""


@dataclass(frozen=True, slots=True)
class Stretch:
    """Every `step`-th unit of an axis from `start` on."""

    start: int
    size: int
    step: int = 1

    def part(self, inner: "Stretch") -> "Stretch":
        """Some of them, by their numbers here."""
        return Stretch(self.start + self.step * inner.start, inner.size, self.step * inner.step)


@dataclass(frozen=True, eq=False, slots=True)
class IsUnit(_Value):
    """Whether the candidate changes the unit that stands at j."""

    units: Stretch


@dataclass(frozen=True, slots=True)
class Move:
    """Tables from which a kernel computes what a candidate makes of a layer."""

    base: int  # the old layer
    responses: int  # what the examples make of directions
    lengths: int  # how far the candidate goes along `dim` of them
    dim: int


@dataclass(frozen=True, eq=False, slots=True)
class Linear(_Value):
    """A new column: the old one, a shift, and a few lines of a table of responses."""

    move: Move
    shift: int
    places: int  # of the lines


@dataclass(frozen=True, eq=False, slots=True)
class Spread(_Value):
    """A whole new layer: the old one and responses (particles · dim, units, examples)."""

    move: Move
    particles: int
    size: int  # of the layer
    start: int  # the unit of it that stands at j = 0
    step: int  # from one unit to the next


# -- what is computed from arguments ---------------------------------------------------------------


@dataclass(frozen=True, eq=False, slots=True)
class Apply(_Value):
    """A function of its arguments; values per lane broadcast along j."""

    function: Fn


@dataclass(frozen=True, eq=False, slots=True)
class Select(_Value):
    """Where the first argument holds the second, else the third."""


@dataclass(frozen=True, eq=False, slots=True)
class Cast(_Value):
    """Its argument in another kind."""


@dataclass(frozen=True, eq=False, slots=True)
class Lookup(_Value):
    """table[argument, j]."""

    table: int


@dataclass(frozen=True, eq=False, slots=True)
class Reduce(_Value):
    """Its argument reduced over j; known once the loop is through."""

    reduction: Reduction


@dataclass(frozen=True, eq=False, slots=True)
class Pick(_Value):
    """The first argument at j = the second."""


@dataclass(frozen=True, eq=False, slots=True)
class Product(_Value):
    """Base + argument · weight, over the argument's axis.

    A second argument, if there is one, is added at the unit that the candidate changes.
    """

    weight: int
    base: int
    units: Stretch  # that stand at j = 0, 1, ...


@dataclass(frozen=True, eq=False, slots=True)
class Concat(_Value):
    """Its arguments, one after the other along j."""


Moved = Linear | Spread
Leaf = Constant | Read | Unit | IsUnit | Moved
Elementwise = Apply | Select | Cast
Reduced = Reduce | Pick
Looped = Reduced | Product  # needs a whole loop over the axis of its first argument
Expr = Leaf | Elementwise | Lookup | Looped | Concat
