"""Every quick check of groups F to L, and the tools they share against hand computations."""

import math

import numpy as np
import pytest
import torch

from hardstep.geometry import Orthoplex
from hardstep.nn import LIF
from hardstep.optim import Reach
from hardstep.solvers import Greedy, RowSoftmax
from hardstep.theory import (
    group_f,
    group_g,
    group_g_walks,
    group_h,
    group_h_plateau,
    group_i,
    group_i_routing,
    group_jk,
    group_l,
)
from hardstep.theory.suite import Run, judge, registered
from hardstep.theory.walks import (
    Stepper,
    mean_square,
    quadratic,
    radial,
    saturated,
    step_on,
    unit_vectors,
    walk,
    wall,
)

MODULES = (
    group_f, group_g, group_g_walks, group_h, group_h_plateau,
    group_i, group_i_routing, group_jk, group_l,
)  # fmt: skip
CHECKS = {
    one.id: one
    for one in registered()
    if one.function.__module__ in {module.__name__ for module in MODULES}
}
LOOKS = Orthoplex(2).vertices().numpy()[None]  # +e_1, −e_1, +e_2, −e_2


@pytest.mark.parametrize("identifier", CHECKS)
def test_quick_check_passes_and_its_controls_fail(identifier):
    outcome = judge(CHECKS[identifier], Run())
    assert outcome.passed, outcome.evidence.measured
    assert outcome.sound, outcome.controls_failed
    assert outcome.paper_agrees in (None, True), outcome.evidence.paper


def test_all_identifiers_but_the_trained_protocols_are_there():
    counts = {"F": 6, "G": 11, "H": 10, "I": 8, "J": 3, "K": 2, "L": 2}
    named = {f"{group}{number}" for group, top in counts.items() for number in range(1, top + 1)}
    assert set(CHECKS) == named - {"I7", "J2"}


def test_titles_fit_a_table():
    assert max(len(one.title) for one in CHECKS.values()) < 80


def test_results_depend_on_the_seed_only():
    first, again, other = (CHECKS["G3"].function(Run(seed=s)).measured for s in (3, 3, 4))
    assert first == again
    assert first != other


# -- steps and walks ----------------------------------------------------------------------------


def test_quadratic_per_particle():
    points = np.array([[[[1.0, 2.0]]], [[[3.0, 1.0]]]])
    both = quadratic(np.array([[2.0, 1.0], [1.0, 4.0]])[:, None, None])(points)
    assert both.ravel().tolist() == [3.0, 6.5]


def test_wall_is_beyond_its_position():
    assert wall(0.5)(np.array([[0.5, 9.0], [0.6, -9.0]])).tolist() == [0.0, 1.0]


def test_saturated_step_goes_to_the_best_vertex():
    # Costs ½‖z ± e‖² are least along −e_2 from (0.1, 0.3).
    move = saturated(np.ones(2), 1.0).move(np.array([[0.1, 0.3]]), LOOKS)
    assert move.tolist() == [[0.0, -1.0]]


def test_softmax_step_by_hand():
    move = step_on(LOOKS, np.array([[0.0, 1.0, 1.0, 1.0]]), RowSoftmax(), 0.5)
    rest = math.exp(-2.0)
    assert move.displacement.tolist()[0] == pytest.approx([(1 - rest) / (1 + 3 * rest), 0.0])


def test_stepper_applies_both_jitters():
    stepper = Stepper(wall(1.05), Reach(2.0, 2.0, 1), Greedy())
    at = np.zeros((1, 2))
    assert stepper.move(at, LOOKS).tolist() == [[0.0, 0.0]]  # probes at 1.0 see no wall
    # A probe at 1.1 does: three vertices tie, and their mean is −e_1/3, here 1.5 times 2 long.
    seen = stepper.move(at, LOOKS, probe_jitter=0.1, step_jitter=np.array([0.5]))
    assert seen[0] == pytest.approx([-1.0, 0.0])


def test_walk_shares_rotations_between_copies():
    start = np.tile([[0.3, 0.4], [0.5, -0.1]], (2, 1))
    at = list(walk(Run(), 1, saturated(np.ones(2), 1.0), start, 5, copies=2))[-1]
    assert at[:2].tolist() == at[2:].tolist()
    assert at[0].tolist() != at[1].tolist()


def test_free_walk_after_one_step():
    assert mean_square(Run(), 1, 10, 3, 1)[0] == pytest.approx(1.0)


def test_radial_part():
    assert radial(np.array([[1.0, 1.0]]), np.array([[0.0, -2.0]])).tolist() == [-1.0]


def test_unit_vectors_are_unit_and_centred():
    found = unit_vectors(np.random.default_rng(0), 20_000, 3)
    assert np.linalg.norm(found, axis=1) == pytest.approx(1.0)
    assert np.abs(found.mean(axis=0)).max() < 4 / math.sqrt(3 * 20_000)


# -- pieces of checks ---------------------------------------------------------------------------


def test_goldstein_margin():
    assert group_f._margin(0.2, kink=1.0, radius=1.0) == 0.2
    assert group_f._margin(0.9, kink=1.0, radius=2.0) == pytest.approx(0.1)
    assert group_f._margin(0.2, kink=1.0, radius=0.99) == -0.2


def test_joint_percentile_agrees_with_one_block():
    law = group_f.JOINT
    share = group_f._percentile(law, 1, 0.999)
    assert law.expect(lambda r: (r < share * law.outer) * 1.0, share * law.outer) == pytest.approx(
        0.999, abs=1e-5
    )


def test_corner_probability_does_not_depend_on_the_grid():
    coarse, fine = (group_f._log_corner(0.95, cells=cells)["norm"] for cells in (3000, 6000))
    assert coarse == pytest.approx(fine, abs=0.002)


def test_breaks_of_a_piecewise_constant_label():
    found = group_g._breaks(lambda x: (x > 0.3).astype(float) + (x > 0.71), 0.0, 1.0, 10)
    assert found == pytest.approx([0.0, 0.3, 0.71, 1.0])


def test_spike_walls_are_where_a_neuron_fires_after_n_steps():
    walls = group_i.spike_walls()
    assert float(walls[0]) == pytest.approx(1.0)
    for n, current in enumerate(walls.tolist(), start=1):
        late = group_i.trains(LIF(0.9), torch.tensor([current * (1 + 1e-9)], dtype=torch.float64))
        assert int(late[:, 0].argmax()) == n - 1


def test_first_spikes_count_silence_as_never():
    spikes = torch.zeros(15, 2)
    spikes[4, 1] = 1.0
    assert group_i.first_spikes(spikes).tolist() == [15.0, 4.0]


def test_a_wall_is_kept_if_its_owner_alone_changed():
    changed = torch.tensor([[True, False], [True, True], [False, True], [False, False]])
    kept = group_i.sole(changed, torch.tensor([0, 0, 0, 0]))
    assert kept.tolist() == [True, False, False, False]


def test_crossings_by_hand():
    before = np.array([[1.0, 2.0], [1.0, 2.0]])
    beyond = np.array([[1.0, 3.0], [1.0, 2.0]])
    facts = group_i.Crossings(before, beyond, np.array([1, 0])).facts()
    assert facts == {
        "zero fraction": 0.5, "example-local": 0.0, "against j/n_B": 0.0, "walls": 2.0,
    }  # fmt: skip


def test_batch_law_is_one_for_walls_of_one_example():
    small, large = np.zeros((1, 4)), np.zeros((1, 40))
    small[0, 0] = large[0, 0] = 0.7
    assert group_i.batch_law(small, large) == pytest.approx(1.0)


def test_hitting_probability_vanishes_beyond_the_longest_step():
    assert group_l._one_vertex_hit(0.121) == 0.0
    assert 0.15 < group_l._one_vertex_hit(0.1) < group_l._one_vertex_hit(0.09)


def test_refuted_rate_of_one_row():
    assert group_jk._refuted_rate(1) == pytest.approx(0.99)
