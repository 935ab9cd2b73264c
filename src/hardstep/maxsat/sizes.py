"""What a formula and its search take of memory, known before any of it is taken.

Bytes were measured as the growth of the process at its peak, and rounded up.
"""

from hardstep._memory import check_memory
from hardstep.maxsat.formula import Formula

# Numbers, particles, probes, costs and plans of a step; counts, costs and masks; the index.
_STEP_PER_VARIABLE, _STEP_PER_CLAUSE, _STEP_PER_LITERAL = 320, 32, 12
_FLIPS_PER_VARIABLE, _FLIPS_PER_CLAUSE, _FLIPS_PER_LITERAL = 40, 48, 16
# Starts and weights with their checks; the literals.
_FORMULA_PER_CLAUSE, _FORMULA_PER_LITERAL = 48, 8


def check_search(formula: Formula) -> None:
    """Refuse a formula whose search by PolyStep would not fit in memory."""
    _check("Search", formula, _STEP_PER_VARIABLE, _STEP_PER_CLAUSE, _STEP_PER_LITERAL)


def check_local(formula: Formula) -> None:
    """Refuse a formula whose local search would not fit in memory."""
    _check("local_search", formula, _FLIPS_PER_VARIABLE, _FLIPS_PER_CLAUSE, _FLIPS_PER_LITERAL)


def check_formula(what: str, num_clauses: int, num_literals: int, way_out: str) -> None:
    """Refuse so many clauses and literals if they would not fit in memory."""
    needed = _FORMULA_PER_CLAUSE * num_clauses + _FORMULA_PER_LITERAL * num_literals
    check_memory(f"{what}: {num_clauses:,} clauses with {num_literals:,} literals", needed, way_out)


def _check(
    who: str, formula: Formula, per_variable: int, per_clause: int, per_literal: int
) -> None:
    literals = formula.literals.size
    variables = min(formula.num_variables, literals)  # others do not occur
    check_memory(
        f"{who}: {variables:,} variables in {formula.num_clauses:,} clauses",
        per_variable * variables + per_clause * formula.num_clauses + per_literal * literals,
        "take a machine with more, or a smaller formula",
    )
