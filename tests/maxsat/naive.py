"""Slow twins in plain Python: a parser of the three formats, and costs clause by clause."""

from typing import NamedTuple

from hypothesis import settings
from hypothesis import strategies as st

from hardstep.maxsat import Formula

EXAMPLES = settings(max_examples=50, deadline=None, derandomize=True)


class Plain(NamedTuple):
    """A formula as lists, clauses as files write them and as they were given."""

    num_variables: int
    clauses: list[list[int]]
    weights: list[int | None]  # None: hard


def parse(text: str) -> Plain:
    lines = [line.strip() for line in text.split("\n")]
    lines = [line for line in lines if line and not line.startswith("c")]
    header = lines.pop(0).split() if lines[0].startswith("p") else ["p", "wcnf", "-1"]
    top = int(header[4]) if len(header) == 5 else 2**64
    if header[1] == "cnf" and "%" in lines:
        lines = lines[: lines.index("%")]
    clauses, weights, words = [], [], []
    for word in " ".join(lines).split():
        if word != "0":
            words.append(word)
            continue
        weight = words.pop(0) if header[1] == "wcnf" else "1"
        weights.append(None if weight == "h" or int(weight) >= top else int(weight))
        clauses.append([int(word) for word in words])
        words = []
    largest = max((abs(literal) for clause in clauses for literal in clause), default=0)
    return Plain(largest if header[2] == "-1" else int(header[2]), clauses, weights)


def falsified(plain: Plain, assignment) -> tuple[int, int]:
    weight, hard = 0, 0
    for clause, value in zip(plain.clauses, plain.weights, strict=True):
        if not any(assignment[abs(literal) - 1] == (literal > 0) for literal in clause):
            weight, hard = weight + (value or 0), hard + (value is None)
    return weight, hard


def normal(plain: Plain) -> Plain:
    """Without repeated literals and tautologies."""
    kept = [
        (list(dict.fromkeys(clause)), weight)
        for clause, weight in zip(plain.clauses, plain.weights, strict=True)
        if not any(-literal in clause for literal in clause)
    ]
    return Plain(plain.num_variables, [c for c, _ in kept], [w for _, w in kept])


def formula_of(plain: Plain) -> Formula:
    hard = [weight is None for weight in plain.weights]
    weights = [weight or 1 for weight in plain.weights]
    return Formula.from_lists(plain.clauses, plain.num_variables, weights, hard or None)


def as_lists(formula: Formula) -> Plain:
    """What a formula holds, through its public arrays."""
    clauses = []
    for start, end in zip(formula.starts[:-1], formula.starts[1:], strict=True):
        literals = formula.literals[start:end].tolist()
        clauses.append([-(x // 2) - 1 if x % 2 else x // 2 + 1 for x in literals])
    hard = [False] * formula.num_clauses if formula.hard is None else formula.hard.tolist()
    weights = [None if h else w for h, w in zip(hard, formula.weights.tolist(), strict=True)]
    return Plain(formula.num_variables, clauses, weights)


@st.composite
def plains(draw, max_variables=12, max_clauses=12, max_weight=2**58, *, unit=False):
    """Formulas with repeated, complementary, empty and long clauses."""
    num_variables = draw(st.integers(1, max_variables))
    literal = st.integers(1, num_variables).flatmap(lambda v: st.sampled_from([v, -v]))
    clauses = draw(st.lists(st.lists(literal, max_size=7), max_size=max_clauses))
    weight = st.just(1) if unit else st.one_of(st.none(), st.integers(1, max_weight))
    weights = draw(st.lists(weight, min_size=len(clauses), max_size=len(clauses)))
    return Plain(num_variables, clauses, weights)
