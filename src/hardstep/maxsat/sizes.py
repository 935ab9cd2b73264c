"""What a formula and its search take of memory, known before any of it is taken.

Bytes were measured as the growth of the process at its peak, and rounded up.
"""

from hardstep._memory import check_memory
from hardstep.maxsat.formula import Formula

_STEP = (240, 4, 6)  # for each variable, clause and literal
_FLIPS = (40, 24, 10)
_WEIGHTS = 24  # more for each clause, if the weights differ
_FORMULA_PER_CLAUSE, _FORMULA_PER_LITERAL = 32, 4
_ASSIGNMENTS = 4  # of all variables, those included that do not occur: the current one, the best, …


def check_search(formula: Formula) -> None:
    """Refuse a formula whose search by PolyStep would not fit in memory."""
    _check("Search", formula, *_STEP)


def check_local(formula: Formula) -> None:
    """Refuse a formula whose local search would not fit in memory."""
    _check("local_search", formula, *_FLIPS)


def check_formula(what: str, num_clauses: int, num_literals: int, way_out: str) -> None:
    """Refuse so many clauses and literals if they would not fit in memory."""
    needed = _FORMULA_PER_CLAUSE * num_clauses + _FORMULA_PER_LITERAL * num_literals
    check_memory(f"{what}: {num_clauses:,} clauses with {num_literals:,} literals", needed, way_out)


def _check(
    who: str, formula: Formula, per_variable: int, per_clause: int, per_literal: int
) -> None:
    literals = formula.literals.size
    variables = min(formula.num_variables, literals)  # others do not occur
    if formula.hard is not None or formula.weights.max(initial=1) > formula.weights.min(initial=1):
        per_clause += _WEIGHTS
    check_memory(
        f"{who}: {variables:,} variables in {formula.num_clauses:,} clauses",
        per_variable * variables + per_clause * formula.num_clauses + per_literal * literals,
        "take a machine with more, or a smaller formula",
        reserved=_ASSIGNMENTS * (formula.num_variables - variables),
    )
