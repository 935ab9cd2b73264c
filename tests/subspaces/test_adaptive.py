import pytest
import torch

from hardstep.errors import ConfigError
from hardstep.subspaces import LayerWise, Layout

from .catalogue import bound, flat, matrix, randn, tensors_of


def walk(subspace, steps, start=0):
    """Commit `steps` moves; returns what commit said and the parameters' displacement."""
    answers, path = [], torch.zeros(subspace.layout.num_parameters, dtype=torch.float64)
    for step in range(start, start + steps):
        move = randn(subspace.dim, seed=step)
        path = path + flat(subspace, subspace.expand(move))
        answers.append(subspace.commit(step, move))
    return answers, path


def test_it_starts_as_the_layer_wise_subspace():
    assert torch.equal(matrix(bound("adaptive", "linear")), matrix(bound("layers", "linear")))


def test_coordinates_change_their_meaning_every_third_step_and_only_then():
    subspace = bound("adaptive", "linear")
    for step in range(7):
        before = matrix(subspace)
        changed = subspace.commit(step, randn(subspace.dim, seed=step))
        assert changed is (step in (2, 5))
        assert torch.equal(matrix(subspace), before) is not changed


def test_after_a_redraw_the_first_direction_of_each_layer_is_its_displacement():
    subspace = bound("adaptive", "linear")
    for start in (0, 3):  # the second time from a basis that was itself redrawn
        _, path = walk(subspace, 3, start)
        columns = matrix(subspace)
        for name, rows in {"0.weight": slice(0, 30), "2.weight": slice(35, 50)}.items():
            first = subspace.starts[[b.names[0] for b in subspace.blocks].index(name)]
            direction, lead = columns[rows, first], path[rows]
            torch.testing.assert_close(direction, lead / lead.norm(), rtol=0, atol=1e-12)
        assert subspace.orthonormal
        gram = columns.T @ columns
        assert float((gram - torch.eye(subspace.dim)).abs().max()) < 1e-10


def test_the_displacement_since_the_last_redraw_counts_not_the_one_before():
    first, second = bound("adaptive", "linear"), bound("adaptive", "linear")
    walk(first, 3)
    for step in range(3):  # another path, so the two bases differ
        second.commit(step, randn(second.dim, seed=40 + step))
    still = torch.zeros(first.dim, dtype=torch.float64)
    for step in (3, 4, 5):
        for subspace in (first, second):
            subspace.commit(step, still)
    assert torch.equal(matrix(first), matrix(second))  # no displacement: both purely random


def test_vectors_keep_their_coordinates():
    subspace = bound("adaptive", "linear")
    walk(subspace, 3)
    biases = matrix(subspace)[30:35, subspace.starts[1] : subspace.starts[2]]
    assert torch.equal(biases, torch.eye(5, dtype=torch.float64))


@pytest.mark.parametrize("steps", [0, 2, 3, 7])
def test_a_saved_state_restores_the_bases_bit_for_bit_and_goes_on_alike(steps):
    saved, loaded = bound("adaptive", "linear"), bound("adaptive", "linear")
    walk(saved, steps)
    loaded.load_state_dict(saved.state_dict())
    assert torch.equal(matrix(loaded), matrix(saved))
    walk(saved, 4, start=steps)
    walk(loaded, 4, start=steps)
    assert torch.equal(matrix(loaded), matrix(saved))


def test_a_state_from_before_the_first_redraw_undoes_later_redraws():
    subspace = bound("adaptive", "linear")
    start = matrix(subspace)
    state = subspace.state_dict()
    walk(subspace, 3)
    assert not torch.equal(matrix(subspace), start)
    subspace.load_state_dict(state)
    assert torch.equal(matrix(subspace), start)


def test_a_state_taken_earlier_is_not_changed_by_later_moves():
    subspace = bound("adaptive", "linear")
    walk(subspace, 4)
    state = subspace.state_dict()
    kept = {name: tensor.clone() for name, tensor in state.items()}
    walk(subspace, 4, start=4)
    assert all(torch.equal(state[name], kept[name]) for name in kept)


def test_other_subspaces_keep_no_state_and_refuse_one():
    subspace = LayerWise(1).bind(Layout(tensors_of("linear")), 3, 0)
    assert subspace.state_dict() == {}
    subspace.load_state_dict({})
    with pytest.raises(ConfigError, match=r"keeps no state, got \['redraws'\]"):
        subspace.load_state_dict({"redraws": torch.tensor(1)})
