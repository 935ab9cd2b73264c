"""The tables that a kernel reads: what each of them holds, as the key a program numbers it by.

An `index` is the number of a recorded value.
"""

from dataclasses import dataclass
from enum import Enum, auto

from hardstep.evaluation.fused.expressions import Stretch

# -- made of recorded values, once per step --------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Flat:
    """A value as it is, number after number."""

    index: int


@dataclass(frozen=True, slots=True)
class Weight:
    """A matrix that is multiplied, or of which rows are looked up, as it is."""

    index: int


@dataclass(frozen=True, slots=True)
class Matrix:
    """A value (examples, ..., units), as (units, examples)."""

    index: int


@dataclass(frozen=True, slots=True)
class PerExample:
    """A value of one number per example."""

    index: int


@dataclass(frozen=True, slots=True)
class FirstPerExample:
    """The first number of every example, which all its others equal."""

    index: int


@dataclass(frozen=True, slots=True)
class Slab:
    """A part of a stack, as (units, examples)."""

    index: int
    axis: int
    number: int
    examples: int | None = None  # so many, if they and the stack's axis are one axis of the value


@dataclass(frozen=True, slots=True)
class PartOf:
    """Some units of another table; of a matrix that is multiplied, some of its columns."""

    whole: "OfRecord"
    units: Stretch


@dataclass(frozen=True, slots=True)
class PickedScore:
    """Every example's score at its label."""

    scores: int
    labels: int


@dataclass(frozen=True, slots=True)
class LabelWeight:
    """How much every example counts: the weight of its label, or 0 if that is ignored."""

    labels: int
    weight: int | None
    ignored: int


# -- made for a tile -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Units:
    """The unit that every candidate changes."""


@dataclass(frozen=True, slots=True)
class Replaced:
    """What every candidate puts in place of a parameter, or of a row of it."""

    index: int


@dataclass(frozen=True, slots=True)
class Displaced:
    """How far every candidate moves its row of a parameter."""

    index: int


class Part(Enum):
    """What a candidate's change is computed from where it enters."""

    COLUMN = auto()  # a new column, made by torch
    SHIFT = auto()
    RESPONSES = auto()  # of the examples to directions
    PLACES = auto()  # of the responses to a candidate's directions
    PARTICLES = auto()  # a candidate's particle, whose directions it shares
    LENGTHS = auto()  # how far a candidate goes along each direction


@dataclass(frozen=True, slots=True)
class Entering:
    """A part of what enters at a plan's entry of that number."""

    part: Part
    entry: int


OfRecord = (
    Flat
    | Weight
    | Matrix
    | PerExample
    | FirstPerExample
    | Slab
    | PartOf
    | PickedScore
    | LabelWeight
)
Table = OfRecord | Units | Replaced | Displaced | Entering
