from functools import lru_cache

import pytest

from hardstep.theory import Check, Outcome, Run, checks, judge

IDENTIFIERS = [
    *("A1", "A1-MC", "A2", "A3", "A4", "A5", "A6", "A7", "B1", "B2", "B3"),
    *("C1", "C2", "C2-MC", "C3", "C4", "C5", "D1", "D2", "D3", "D4", "D5", "D6", "D7"),
    *("E1", "E2", "E3", "E4", "E5", "E6", "E7", "E8", "E9", "E10"),
]


@lru_cache
def known() -> dict[str, Check]:
    return {check.id: check for check in checks() if check.group in "ABCDE"}


@lru_cache
def outcome(identifier: str) -> Outcome:
    return judge(known()[identifier], Run())


def test_every_identifier_of_the_specification_has_a_check():
    assert list(known()) == IDENTIFIERS


@pytest.mark.parametrize("identifier", IDENTIFIERS)
def test_check_passes_and_its_controls_fail(identifier):
    assert outcome(identifier).sound, outcome(identifier).as_dict()


@pytest.mark.parametrize("identifier", IDENTIFIERS)
def test_figures_of_the_paper_are_met(identifier):
    assert outcome(identifier).paper_agrees in (True, None)


@pytest.mark.parametrize("identifier", IDENTIFIERS)
def test_everything_is_reported_under_the_names_of_what_was_measured(identifier):
    evidence = outcome(identifier).evidence
    names = set(evidence.measured)
    assert set(evidence.expected) <= names
    assert set(evidence.paper) <= names
    assert all(set(control) == names for control in evidence.controls.values())


@pytest.mark.parametrize("identifier", IDENTIFIERS)
def test_title_fits_a_table(identifier):
    assert 10 < len(known()[identifier].title) < 80


def test_a_sampled_check_follows_the_seed():
    check = known()["E9"]
    measured = [judge(check, Run(seed=seed)).evidence.measured for seed in (0, 0, 1)]
    assert measured[0] == measured[1]
    assert measured[0] != measured[2]
