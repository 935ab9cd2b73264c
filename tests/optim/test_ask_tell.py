import json
import math

import numpy as np
import pytest
import torch

from hardstep.errors import CheckpointError, ConfigError, NonFiniteLossError, ObjectiveError
from hardstep.geometry import Orthoplex, Simplex
from hardstep.optim import AdaptiveProbes, Momentum, PlanReuse, PolyStep, Settings, SuccessRadius
from hardstep.optim import AskTell as Search
from hardstep.optim.ask_tell import search_settings
from hardstep.schedules import Length
from hardstep.subspaces import Full

from .toys import through_disk


def bowl(x):
    return ((x - 1.5) ** 2).sum(axis=-1)


def AskTell(dim=None, **arguments):
    """A search by plain steps: every generation is one step of PolyStep."""
    known = dim or len(arguments.get("x0", arguments.get("bounds", [0.0])))
    return Search(dim, **({"settings": search_settings(max(known, 1))} | arguments))


def run(generations, **arguments):
    es = AskTell(**({"x0": [0.0, 1.0, 2.0, 3.0, 4.0], "max_evals": 600} | arguments))
    for _ in range(generations):
        es.tell(bowl(es.ask()))
    return es


# -- asking and telling -------------------------------------------------------------------------


def test_asking_is_stable_until_every_point_has_been_told():
    es = AskTell(5, max_evals=600)
    points = es.ask()
    assert points.shape == (len(es), 5) == (9, 5)  # three particles of two, three directions
    es.tell(bowl(points[:4]), [0, 1, 2, 3])
    points[:] = 77.0  # a copy, of no consequence
    assert not (es.ask() == 77.0).any()
    assert es.pending.tolist() == [4, 5, 6, 7, 8]
    before = es.ask()
    es.tell(bowl(before[4:]), es.pending)
    assert es.pending.tolist() == list(range(9))
    assert not np.array_equal(es.ask(), before)
    assert (es.evaluations, es.optimizer.steps) == (9, 1)


def test_partial_tells_in_any_order_are_one_full_tell_bit_for_bit():
    whole, pieces = run(0), run(0)
    rng = np.random.default_rng(0)
    for _ in range(20):
        points = whole.ask()
        assert np.array_equal(points, pieces.ask())
        losses = bowl(points)
        whole.tell(losses)
        for some in np.array_split(rng.permutation(len(losses)), rng.integers(1, 6)):
            pieces.tell(losses[some], some)
        assert np.array_equal(whole.mean, pieces.mean)
        assert whole.best.loss == pieces.best.loss
        assert np.array_equal(whole.best.x, pieces.best.x)
    assert whole.evaluations == pieces.evaluations == 20 * 9


def test_a_search_takes_the_steps_of_the_optimizer_it_is_made_of():
    start, settings = [0.3, -0.2, 0.9, 0.4], search_settings(4)
    es = AskTell(x0=start, max_evals=240, seed=3)
    tensor = torch.tensor(start, dtype=torch.float64)
    opt = PolyStep({"x": tensor}, settings, seed=3)
    for _ in range(30):
        es.tell(bowl(es.ask()))
        opt.step(batched=lambda stacked: bowl(stacked["x"].numpy()))
        np.testing.assert_allclose(es.mean, tensor.numpy(), rtol=0, atol=1e-9)
    assert es.optimizer.evaluations == opt.evaluations == es.evaluations
    assert abs(es.mean - start).max() > 0.5


def test_points_are_in_units_of_the_scale_around_the_start():
    plain = run(0, x0=np.zeros(4), settings=search_settings(4))
    scaled = run(0, x0=[5.0, 5.0, -7.0, 0.0], scale=[1.0, 2.0, 10.0, 0.1], max_evals=600)
    expected = [5.0, 5.0, -7.0, 0.0] + plain.ask() * [1.0, 2.0, 10.0, 0.1]
    np.testing.assert_allclose(scaled.ask(), expected, rtol=0, atol=1e-13)


def test_the_seed_decides_the_points():
    assert np.array_equal(run(3).ask(), run(3).ask())
    assert not np.array_equal(run(0).ask(), run(0, seed=1).ask())


def test_the_best_is_the_best_of_all_points_told():
    es = run(0)
    seen = []
    rng = np.random.default_rng(1)
    for _ in range(10):
        points = es.ask()
        losses = rng.normal(size=len(points))
        seen += list(zip(losses, points.tolist(), strict=True))
        es.tell(losses)
        loss, x = min(seen)
        assert es.best.loss == loss
        assert es.best.x.tolist() == x
    assert es.best.loss != losses.min()  # it is older than the last generation


def test_losses_that_are_not_finite_are_never_the_best():
    es = run(0)
    losses = np.full(9, np.nan)
    losses[3], losses[5] = -np.inf, 4.0
    points = es.ask()
    es.tell(losses)
    assert es.best.loss == 4.0
    assert np.array_equal(es.best.x, points[5])
    assert es.optimizer.report.nonfinite == 8
    es.tell(np.full(len(es.ask()), np.nan))
    assert np.isfinite(es.ask()).all()


def test_before_anything_is_told_there_is_no_best_loss():
    es = run(0)
    assert es.best.loss == math.inf
    assert np.array_equal(es.best.x, es.mean)
    assert es.mean.tolist() == [0.0, 1.0, 2.0, 3.0, 4.0]


# -- late, repeated and foreign losses ------------------------------------------------------------


def other_points(es):
    return np.full((1, es.dim), 0.25)


LATE = {
    "losses are of generation 1, which is complete; the search is at generation 2, and ask": (
        lambda es, first: es.tell(np.full(9, -999.0))  # nothing was asked since
    ),
    "are of generation 1, which is complete; .* at generation 2": (
        lambda es, first: es.tell([-999.0], [3])
    ),
    "these losses are of generation 1": lambda es, first: es.tell(-999.0, first[3]),
    "losses are of generation 1": lambda es, first: (es.ask(), es.tell([-999.0], first[3:4])),
    r"are of generation 1, .* at generation 3": lambda es, first: (
        es.tell(bowl(es.ask())),
        es.tell([-999.0, -998.0], first[:2]),
    ),
    r"\[0.25, 0.25, 0.25, 0.25, 0.25\] is no point of generation 2; tell points as ask\(\) gave": (
        lambda es, first: es.tell([-999.0], other_points(es))
    ),
    "some points were told already; see `pending`": lambda es, first: (
        es.tell(1.0, es.ask()[2]),
        es.tell(-999.0, es.ask()[2]),
    ),
    "were told already; see": lambda es, first: es.tell([5.0, -999.0], es.ask()[[2, 2]]),
}


@pytest.mark.parametrize("sentence", LATE)
def test_losses_of_points_that_are_not_open_are_refused_and_change_nothing(sentence):
    es = AskTell(5)
    first = es.ask()
    es.tell(bowl(first))
    with pytest.raises(ObjectiveError, match=sentence):
        LATE[sentence](es, first)
    assert es.best.loss > 0


@pytest.mark.parametrize("sentence", LATE)
def test_losses_of_points_that_are_not_open_are_dropped_if_asked(sentence):
    es = AskTell(5, late="ignore")
    first = es.ask()
    es.tell(bowl(first))
    LATE[sentence](es, first)
    assert es.best.loss > 0
    assert es.evaluations == 9 * es.generation - len(es.pending)


def test_losses_of_open_points_are_taken_from_among_late_ones():
    es, plain = AskTell(5, late="ignore"), AskTell(5)
    for _ in range(4):
        first = es.ask()
        es.tell(bowl(first))
        mixed = np.concatenate([first[:4], es.ask(), first[4:]])
        es.tell(bowl(mixed), mixed)
    for _ in range(8):
        plain.tell(bowl(plain.ask()))
    assert np.array_equal(es.mean, plain.mean)
    assert (es.evaluations, es.best.loss) == (plain.evaluations, plain.best.loss)


def test_points_are_recognized_after_any_journey_and_in_any_order():
    whole, pieces = Search(x0=np.zeros(5)), Search(x0=np.zeros(5))
    rng = np.random.default_rng(0)
    for _ in range(8):
        whole.tell(bowl(whole.ask()))
        for point in json.loads(json.dumps(rng.permutation(pieces.ask()).tolist())):
            pieces.tell(float(bowl(np.array(point))), point)
        assert np.array_equal(whole.ask(), pieces.ask())


def test_equal_points_are_told_one_after_the_other():
    settings = Settings(subspace=Full(), polytope=Orthoplex(1))
    es = AskTell(x0=[1.0, 1.0], bounds=(0.0, 1.0), settings=settings)
    points = es.ask()  # the start is in a corner, where two of the four probes end
    assert len(np.unique(points, axis=0)) == 3
    for point in points[:-1]:
        es.tell(1.0, point)
    assert len(es.pending) == 1
    es.tell([1.0], points[-1:])
    assert es.generation == 2


def test_nothing_can_be_told_before_it_was_asked():
    for late in ("raise", "ignore"):
        with pytest.raises(ObjectiveError, match=r"nothing has been asked yet; call ask\(\) first"):
            AskTell(5, late=late).tell(np.zeros(9))


def test_what_was_asked_before_a_save_is_told_after_it():
    es = run(3)
    points = es.ask()
    es.tell(1.0, points[4])
    for tell in (
        lambda again: again.tell(bowl(points[:2]), points[:2]),
        lambda again: again.tell(bowl(points[:2]), [0, 1]),
    ):
        again = run(0)
        again.load_state_dict(through_disk(es.state_dict()))
        tell(again)
        assert again.pending.tolist() == [2, 3, 5, 6, 7, 8]
        with pytest.raises(ObjectiveError, match="told already"):
            again.tell(1.0, points[4])


# -- bounds -------------------------------------------------------------------------------------

BOUNDS = [(-1.0, 0.3), (0.1, 0.7), (-np.inf, 2.0), (1 / 3, np.inf), (-np.inf, np.inf)]


@pytest.mark.parametrize("direction", [1, -1])
def test_neither_points_nor_the_mean_ever_leave_the_bounds(direction):
    low, high = np.array(BOUNDS).T
    es = AskTell(bounds=BOUNDS, scale=0.7, max_evals=3000, seed=2)
    touched = np.zeros(5, dtype=bool)
    for _ in range(60):
        points = es.ask()
        for x in (*points, es.mean):
            assert (x >= low).all()
            assert (x <= high).all()
        touched |= ((points == low) | (points == high)).any(axis=0)
        es.tell(direction * points.sum(axis=1))  # drives every variable to one end
    end = low if direction == 1 else high
    closed = np.isfinite(end)
    assert touched[closed].all()
    np.testing.assert_allclose(es.best.x[closed], end[closed], rtol=0, atol=1e-12)
    assert not touched[4]


def test_the_search_starts_in_the_middle_with_a_quarter_of_the_width():
    es = AskTell(bounds=BOUNDS, max_evals=3000)
    np.testing.assert_allclose(es.mean, [-0.35, 0.4, 0.0, 1 / 3, 0.0])
    settings = Settings(polytope=Simplex(2), probe_radius=Length(1.0))
    wide = AskTell(bounds=[(0.0, 8.0), (-40.0, 40.0)], settings=settings)
    away = (wide.ask() - wide.mean) / [2.0, 20.0]
    np.testing.assert_allclose(np.linalg.norm(away, axis=1), 0.5, rtol=1e-12)  # probes sit half way


# -- stopping -----------------------------------------------------------------------------------


def test_a_search_stops_at_its_target():
    es = Search(2, max_evals=3000, target=1e-3)
    while not es.should_stop:
        es.tell(bowl(es.ask()))
    assert es.best.loss <= 1e-3
    assert es.evaluations < 2000


def test_a_search_stops_before_a_generation_that_its_budget_cannot_pay_for():
    es = AskTell(5, max_evals=9 * 4 + 8)
    for generation in range(4):
        assert not es.should_stop
        es.tell(bowl(es.ask())[:5], range(5))
        assert not es.should_stop, generation  # what has been started is finished
        es.tell(bowl(es.ask())[5:], range(5, 9))
    assert es.should_stop
    assert es.evaluations == 36
    assert AskTell(7).max_evals == 7000  # a thousand per variable unless given


# -- refusals -----------------------------------------------------------------------------------


TELLS = {
    r"expected \(9,\) losses, one per point, got \(8,\)": (np.zeros(8),),
    r"expected \(9,\) losses, one per point, got \(9, 1\)": (np.zeros((9, 1)),),
    r"expected \(2,\) losses, one per point, got \(3,\)": ([1.0, 2.0, 3.0], [0, 1]),
    r"expected \(9,\) losses, one per point, got \(\)": (1.0,),
    r"indices must lie in 0..8, got \[0 9\]": ([1.0, 2.0], [0, 9]),
    r"indices must lie in 0..8, got \[-1\]": ([1.0], [-1]),
    "some points were told already; see `pending`": ([1.0], [7]),
    "some points were told already": (np.zeros(9),),
    "points were told already": ([1.0, 2.0], [4, 4]),
    "were told already": ([-5.0, -6.0], [2, 3]),
    r"losses must be numbers, got \[None, None.*; tell NaN for": ([None] * 9,),
    r"losses must be numbers, got \['1', '1'": (["1"] * 9,),
    r"losses must be numbers, got \[\[1\], \[1, 2\]\]": ([[1], [1, 2]],),
    r"points must have shape \(n, 5\), got \(1, 4\)": ([1.0], np.zeros((1, 4))),
    r"points as ask\(\) returned them, \(9, 5\), or their numbers, got float64\(1,\)": (
        [1.0],
        [0.5],
    ),
    r"or their numbers, got float64\(2, 3, 5\)": ([1.0, 2.0], np.zeros((2, 3, 5))),
    "points must be numbers, got 'all'": ([1.0], "all"),
    "points must be numbers, got .True": ([1.0], [True]),
}


@pytest.mark.parametrize("sentence", TELLS)
def test_losses_that_do_not_fit_are_refused_and_change_nothing(sentence):
    es = AskTell(5)
    es.ask()
    es.tell([1.0, 2.0], [3, 7])
    with pytest.raises(ObjectiveError, match=sentence):
        es.tell(*TELLS[sentence])
    assert es.pending.tolist() == [0, 1, 2, 4, 5, 6, 8]
    assert (es.evaluations, es.best.loss) == (2, 1.0)


REUSING = Settings(rules=(PlanReuse(3),))
SEARCHES = {
    "need one number of variables, got nothing": {},
    "need one number of variables, got {'dim': 3, 'x0': 2}": {"dim": 3, "x0": [0.0, 0.0]},
    "need one number of variables, got {'dim': 0}": {"dim": 0},
    "every bound must have low < high, got": {"bounds": [(0.0, 1.0), (2.0, 2.0)]},
    "bounds must be a .low, high. pair, or one per variable": {"bounds": [(0.0, 1.0, 2.0)]},
    "bounds .0.0, 1.0. of all variables need dim or x0": {"bounds": (0.0, 1.0)},
    "every bound must have low < high, got .1.0, 0.0.": {"dim": 3, "bounds": (1.0, 0.0)},
    "x0 must be finite and within the bounds, got .3.0.": {"x0": [3.0], "bounds": [(0.0, 1.0)]},
    "x0 must be finite and within the bounds, got .nan.": {"x0": [math.nan]},
    "x0 must be finite and within the bounds, got .inf.": {"x0": [math.inf]},
    "scale must be > 0 and finite, got .0.0, 0.0.": {"dim": 2, "scale": 0.0},
    "scale must be > 0 and finite, got .inf.": {"dim": 1, "scale": math.inf},
    r"scale must be one number or one per variable \(2\), got 3 of": {"dim": 2, "scale": [1, 2, 3]},
    "scale must be numbers, got 'wide'": {"dim": 2, "scale": "wide"},
    "x0 must be numbers, got 'abc'": {"x0": "abc"},
    "dim must be a whole number, got 2.5": {"dim": 2.5},
    "target must be a number, got nan": {"dim": 2, "target": math.nan},
    "max_evals must be at least 1, got 0": {"dim": 2, "max_evals": 0},
    "max_evals must be at least 1, got '9'": {"dim": 2, "max_evals": "9"},
    "seed must be a whole number, got None": {"dim": 2, "seed": None},
    "late must be 'raise' or 'ignore', got 'drop'": {"dim": 2, "late": "drop"},
    "settings must be Settings or a preset, got 3": {"dim": 2, "settings": 3},
    "PlanReuse has no meaning between ask and tell": {"dim": 2, "settings": REUSING},
}


@pytest.mark.parametrize("sentence", SEARCHES)
def test_searches_that_make_no_sense_are_refused(sentence):
    with pytest.raises(ConfigError, match=f"^(AskTell: )?{sentence}"):
        AskTell(**SEARCHES[sentence])


# -- other settings -----------------------------------------------------------------------------


def test_a_users_settings_are_followed():
    settings = Settings(
        subspace=Full(),
        polytope=Orthoplex(3),
        step_radius=Length(0.4),
        probe_radius=Length(0.6),
        num_probes=2,
        rules=(Momentum(0.2),),
    )
    es = run(0, x0=np.zeros(6), settings=settings)
    assert len(es) == 2 * 6 * 2
    lengths = np.linalg.norm(es.ask(), axis=1).reshape(12, 2)
    np.testing.assert_allclose(lengths, np.tile([0.2, 0.4], (12, 1)), rtol=1e-12)
    before = es.mean
    es.tell(bowl(es.ask()))
    assert 0 < np.linalg.norm(es.mean - before) <= 0.4 * math.sqrt(2)
    assert bowl(es.mean) < bowl(before)


def test_rows_that_are_reused_are_not_asked_about_and_the_others_find_their_place():
    def cliff(x):  # particle 0 never matters, probes of particle 1 sometimes do
        return 5.0 + 3.0 * (x[:, 2] > 0.6) + x[:, 3] * (x[:, 2] < -0.2)

    settings = Settings(
        subspace=Full(),
        polytope=Simplex(2),
        temperature=1.0,
        step_radius=Length(0.3),
        probe_radius=Length(2.0),
        rules=(AdaptiveProbes(tolerance=0.01, max_age=2),),
    )
    es, tensor = AskTell(4, settings=settings), torch.zeros(4, dtype=torch.float64)
    opt = PolyStep({"x": tensor}, settings)
    sizes = []
    for _ in range(20):
        sizes.append(len(es))
        es.tell(cliff(es.ask()))
        opt.step(batched=lambda stacked: cliff(stacked["x"].numpy()))
        assert opt.report.evaluations == sizes[-1]
        np.testing.assert_allclose(es.mean, tensor.numpy(), rtol=0, atol=1e-12)
    assert {3, 6} <= set(sizes)
    assert es.evaluations == sum(sizes)


def test_a_generation_without_open_questions_is_skipped():
    settings = Settings(subspace=Full(), polytope=Simplex(2), rules=(AdaptiveProbes(max_age=3),))
    es = AskTell(4, settings=settings)
    for generation in range(4):
        assert len(es.ask()) == 6, generation
        es.tell(np.ones(6))
    assert es.evaluations == 24
    assert es.optimizer.steps > 4


def test_under_a_raising_policy_the_search_stays_where_it_is():
    es = AskTell(4, settings=Settings(polytope=Simplex(2), nonfinite="raise"))
    es.ask()
    with pytest.raises(NonFiniteLossError):
        es.tell([1.0, 2.0, math.nan, 4.0, 5.0, 6.0])
    assert es.optimizer.steps == 0


# -- saving -------------------------------------------------------------------------------------


SAVED = [*((AskTell, 4, told) for told in (0, 4, 8)), *((Search, n, 1) for n in (0, 1, 2, 3, 4, 7))]


@pytest.mark.parametrize(("kind", "generations", "told"), SAVED)
def test_a_search_saved_in_the_middle_of_a_generation_goes_on_bit_for_bit(kind, generations, told):
    whole, other = (kind(x0=np.zeros(5), bounds=[(-3.0, 2.0)] * 5, seed=4) for _ in range(2))
    for _ in range(generations):
        whole.tell(bowl(whole.ask()))
    whole.tell(bowl(whole.ask())[:told], range(told))
    other.load_state_dict(through_disk(whole.state_dict()))
    assert np.array_equal(other.pending, whole.pending)
    for es in (whole, other):
        for _ in range(30):
            es.tell(bowl(es.ask())[es.pending], es.pending)
    assert np.array_equal(whole.ask(), other.ask())
    assert np.array_equal(whole.best.x, other.best.x)
    for name in ("radius", "evaluations"):
        assert getattr(whole, name) == getattr(other, name)
    assert whole.best.loss == other.best.loss


def test_a_search_over_other_variables_and_what_is_no_state_refuse_and_stay():
    saved = run(2).state_dict()
    for change in (
        {"x0": np.zeros(5)},
        {"scale": 2.0},
        {"bounds": [(0.0, 4.0)] * 5},
        {"x0": np.zeros(6)},
        {"seed": 1},
    ):
        other = run(0, **change)
        before = other.ask()
        with pytest.raises(CheckpointError):
            other.load_state_dict(saved)
        assert np.array_equal(other.ask(), before)
    with pytest.raises(
        CheckpointError, match=r"the state has no 'asked'; give what state_dict\(\)"
    ):
        AskTell(3).load_state_dict({})


# -- a radius that follows success ----------------------------------------------------------------


def test_the_start_comes_with_the_first_probes_then_the_point_they_lead_to():
    es = Search(x0=np.zeros(4))
    assert np.array_equal(es.ask()[0], np.zeros(4))
    sizes, checking = [], []
    for _ in range(7):
        sizes.append(len(es))
        checking.append(es.is_checking)
        es.tell(bowl(es.ask()))
    assert sizes == [7, 1, 6, 1, 6, 1, 6]
    assert checking == [False, True, False, True, False, True, False]
    assert es.evaluations == 28
    assert (es.optimizer.steps, es.generation) == (4, 8)


def test_a_budget_below_the_first_generation_is_spent_on_the_start():
    sizes = [len(Search(x0=np.zeros(4), max_evals=n)) for n in (1, 6, 7)]
    assert sizes == [1, 1, 7]


def test_the_radius_grows_with_success_and_shrinks_without():
    es = Search(x0=np.zeros(4), radius=SuccessRadius(grow=1.5, shrink=0.5))

    def tell(*losses):
        points = es.ask()
        es.tell(losses)
        return points

    tell(10.0, *bowl(es.ask()[1:]))
    (landed,) = tell(9.0)
    assert es.radius == 1.5
    assert np.array_equal(es.mean, landed)
    probes = tell(11.0, 12.0, 8.5, 10.0, 13.0, 12.0)
    tell(9.5)  # worse than 9, but a probe was better
    assert es.radius == 0.75
    assert np.array_equal(es.mean, probes[2])
    tell(20.0, 21.0, 22.0, 23.0, 24.0, 25.0)
    tell(math.nan)
    assert es.radius == 0.375
    assert np.array_equal(es.mean, probes[2])


def test_on_a_plateau_the_radius_doubles_until_an_edge_is_found():
    def far(x):
        return np.where(np.abs(x).max(axis=-1) < 20.0, 5.0, 1.0)

    es = Search(x0=np.zeros(4), max_evals=2000)
    radii = []
    while es.best.loss > 1.0 and not es.should_stop:
        radii.append(es.radius)
        es.tell(far(es.ask()))
    assert es.best.loss == 1.0
    assert radii[:5] == [1.0, 2.0, 4.0, 8.0, 16.0]


def test_a_finished_basin_is_left_from_the_best_point_with_a_wide_radius():
    def two_basins(x):  # the start is in the shallow one
        return np.minimum(np.abs(x).sum(axis=-1) + 1.0, np.abs(x - 6.0).sum(axis=-1))

    es = Search(x0=np.array([0.5, -0.25]), max_evals=20_000)
    radii = []
    while es.best.loss > 0.5 and not es.should_stop:
        radii.append(es.radius)
        before = es.restarts
        es.tell(two_basins(es.ask()))
        if es.restarts > before:
            assert np.array_equal(es.mean, es.best.x)
            assert es.radius >= 1
    assert es.restarts >= 1
    assert min(radii) < 1e-7
    assert es.best.loss <= 0.5
    np.testing.assert_allclose(es.best.x, 6.0, atol=0.5)


def test_a_radius_that_cannot_follow_is_refused():
    for grow, shrink in ((0.9, 0.5), (1.2, 1.0), (1.2, 0.0)):
        with pytest.raises(ConfigError, match="SuccessRadius: grow must be"):
            SuccessRadius(grow, shrink)
