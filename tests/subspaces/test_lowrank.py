import torch

from hardstep.subspaces import Layout, LowRank

from .catalogue import bound, flat, randn

ROWS, COLUMNS, RANK = 6, 7, 2


def subject(seed=0):
    layout = Layout({"w": torch.zeros(ROWS, COLUMNS, dtype=torch.float64)})
    return LowRank(RANK).bind(layout, 3, seed)


def factors(coordinates):
    """Coordinates as the two factors (d_out, r) and (d_in, r)."""
    left, right = coordinates.split([ROWS * RANK, COLUMNS * RANK])
    return left.reshape(ROWS, RANK), right.reshape(COLUMNS, RANK)


def current(subspace):
    return factors(subspace.project({"w": torch.zeros(ROWS, COLUMNS, dtype=torch.float64)}))


def assert_close(actual, expected):
    torch.testing.assert_close(actual, expected, rtol=0, atol=1e-12)


def test_starting_factors_have_orthonormal_columns():
    for factor in current(subject()):
        assert_close(factor.T @ factor, torch.eye(RANK, dtype=torch.float64))


def test_expand_is_the_product_of_moved_factors_minus_the_product_of_the_old():
    subspace = subject()
    old_left, old_right = current(subspace)
    coordinates = randn(subspace.dim)
    left, right = factors(coordinates)
    expected = (old_left + left) @ (old_right + right).T - old_left @ old_right.T
    assert_close(subspace.expand(coordinates)["w"], expected)


def test_expand_is_not_linear_when_both_factors_move():
    subspace = subject()
    coordinates = randn(subspace.dim)
    once = flat(subspace, subspace.expand(coordinates))
    twice = flat(subspace, subspace.expand(2 * coordinates))
    left, right = factors(coordinates)
    assert_close(twice - 2 * once, 2 * (left @ right.T).reshape(-1))
    assert float((twice - 2 * once).norm()) > 0.1


def test_commit_moves_the_factors_and_keeps_the_meaning_of_coordinates():
    subspace = subject()
    before, move = current(subspace), randn(subspace.dim)
    assert subspace.commit(0, move) is False
    for old, change, new in zip(before, factors(move), current(subspace), strict=True):
        assert_close(new, old + change)


def test_two_moves_add_up_to_the_change_of_the_product():
    subspace = subject()
    first_left, first_right = current(subspace)
    total = torch.zeros(ROWS, COLUMNS, dtype=torch.float64)
    for step in range(2):
        move = randn(subspace.dim, seed=step)
        total += subspace.expand(move)["w"]
        subspace.commit(step, move)
    left, right = current(subspace)
    assert_close(total, left @ right.T - first_left @ first_right.T)


def test_no_group_holds_numbers_of_both_factors():
    assert subject().group_sizes == (ROWS * RANK, COLUMNS * RANK)


def test_a_saved_state_restores_the_factors_bit_for_bit():
    saved, loaded = bound("lowrank", "linear"), bound("lowrank", "linear", seed=99)
    for step in range(3):
        saved.commit(step, randn(saved.dim, seed=step))
    state = saved.state_dict()
    assert len(state) == 4
    loaded.load_state_dict(state)
    move = randn(saved.dim, seed=9)
    for name, change in saved.expand(move).items():
        assert torch.equal(loaded.expand(move)[name], change)


def test_a_state_taken_earlier_is_not_changed_by_later_moves():
    subspace = subject()
    state = subspace.state_dict()
    kept = {name: tensor.clone() for name, tensor in state.items()}
    subspace.commit(0, randn(subspace.dim))
    assert all(torch.equal(state[name], kept[name]) for name in kept)
    subspace.load_state_dict(state)
    subspace.commit(1, randn(subspace.dim))
    assert all(torch.equal(state[name], kept[name]) for name in kept)
