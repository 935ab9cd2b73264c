"""What ranks take of a step: everything once, and about as long each."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from hardstep.distributed.shares import FIRST, Answer, Shares, join_rows
from hardstep.errors import WorkerError


def answer_as_planned(shares: list, starts: list[int], num: int, micros) -> list[Answer]:
    """Answers of all ranks, where tiles begin at some candidates."""
    ends = dict(zip(starts, [*starts[1:], num], strict=True))
    found = []
    for start, stop in (one for ranges in shares for one in ranges):
        own = [first for first in starts if start <= first < stop]
        if own:
            rows = torch.arange(own[0], ends[own[-1]], dtype=torch.float64)
            found.append(Answer(own[0], rows, micros(own)))
    return sorted(found, key=lambda one: one.start)


@given(st.data(), st.integers(1, 5), st.integers(1, 400))
def test_every_candidate_is_answered_once_and_ranks_end_together(data, ranks, num):
    starts = sorted({0, *data.draw(st.lists(st.integers(0, num - 1), max_size=20))})
    takes = {first: data.draw(st.integers(1, 9_000)) for first in starts}
    shares = Shares(ranks)
    for _ in range(3):
        plan = shares.plan(num)
        assert len(plan) == ranks
        answers = answer_as_planned(plan, starts, num, lambda own: sum(map(takes.get, own)))
        assert join_rows(answers, num).tolist() == list(range(num))
        shares.note(num, answers)
    lasted = {one.start: one.micros for one in answers}
    loads = [sum(lasted[start] for start, _ in ranges) for ranges in shares.plan(num)]
    assert max(loads) <= sum(loads) / ranks + max(lasted.values())


def test_first_shares_are_even():
    plan = Shares(2).plan(640)
    assert [len(ranges) for ranges in plan] == [FIRST, FIRST]
    assert plan[0][0] == (0, 20)
    assert plan[1][-1] == (620, 640)


def test_another_number_of_candidates_starts_anew():
    shares = Shares(2)
    shares.note(10, [Answer(0, torch.zeros(10), 5)])
    assert shares.plan(10) == [[(0, 10)], []]
    assert shares.plan(12) == Shares(2).plan(12)


def test_answers_with_a_hole_are_refused():
    with pytest.raises(WorkerError, match="from 4 on where 3 is next, so ranks do not cut"):
        join_rows([Answer(0, torch.zeros(3), 1), Answer(4, torch.zeros(2), 1)], 6)
