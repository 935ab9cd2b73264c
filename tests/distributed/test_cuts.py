"""Where steps are cut: every candidate once, long ranges first."""

import pytest

from hardstep.distributed.cuts import TOGETHER, Cuts, Range


def measured(seconds, size=10):
    return [Range(size * n, size * n + size, one) for n, one in enumerate(seconds)]


@pytest.mark.parametrize("workers", [1, 2, 3, 20])
def test_every_candidate_is_handed_out_once_before_and_after_a_step(workers):
    cuts = Cuts(8)
    for _ in range(3):
        ranges = sorted(cuts.plan(120, workers))
        stops = [0, *(stop for _, stop in ranges)]
        assert [start for start, _ in ranges] == stops[:-1]
        assert stops[-1] == 120
        cuts.note(120, workers, [Range(*one, 0.001 * (one[1] - one[0])) for one in ranges])


def test_each_worker_gets_most_of_its_share_and_the_rest_goes_out_singly():
    cuts = Cuts(8)
    cuts.note(120, 2, measured([0.004] * 9 + [0.003] * 3))
    assert cuts.plan(120, 2)[:2] == [(0, 40), (40, 80)]
    assert cuts.plan(120, 2)[2:] == [(80, 90), (90, 100), (100, 110), (110, 120)]
    assert len(cuts.plan(120, 3)) == 24  # of another number of workers nothing is known


def test_what_takes_long_is_not_joined():
    cuts = Cuts(8)
    cuts.note(120, 2, measured([TOGETHER] * 11 + [2 * TOGETHER]))
    assert cuts.plan(120, 2)[0] == (110, 120)
    assert len(cuts.plan(120, 2)) == 12


def test_ranges_handed_out_as_one_share_what_it_took():
    cuts = Cuts(8)
    cuts.note(40, 2, measured([0.001, 0.003, 0.002, 0.002]))
    cuts.note(40, 2, [Range(0, 20, 0.2), Range(20, 30, 0.2), Range(30, 40, 0.3)])
    assert cuts.plan(40, 2) == [(30, 40), (20, 30), (10, 20), (0, 10)]
