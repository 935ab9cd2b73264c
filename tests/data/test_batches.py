import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from hardstep.data import Batches, Split, digits
from hardstep.errors import ConfigError


def numbered(count):
    return Split(torch.arange(float(count))[:, None], torch.arange(count))


def order(batches):
    return torch.cat([labels for _, labels in batches]).tolist()


@given(st.integers(1, 60), st.integers(1, 70), st.integers(0, 5), st.booleans())
def test_an_epoch_visits_every_example_exactly_once(count, batch_size, epoch, shuffle):
    batches = Batches(numbered(count), batch_size, seed=0, shuffle=shuffle)
    batches.set_epoch(epoch)
    assert sorted(order(batches)) == list(range(count))


@given(st.integers(1, 60), st.integers(1, 70))
def test_only_the_last_batch_may_be_partial(count, batch_size):
    sizes = [len(labels) for _, labels in Batches(numbered(count), batch_size, seed=0)]
    assert len(sizes) == len(Batches(numbered(count), batch_size, seed=0))
    assert all(size == batch_size for size in sizes[:-1])
    assert 0 < sizes[-1] <= batch_size


@pytest.mark.parametrize(("count", "steps"), [(54_000, 106), (108_000, 211)])
def test_steps_per_epoch_are_those_of_the_paper(count, steps):
    assert len(Batches(numbered(count), 512, seed=0)) == steps


def test_inputs_and_labels_stay_together():
    for inputs, labels in Batches(numbered(20), 6, seed=1):
        torch.testing.assert_close(inputs[:, 0].long(), labels)


def test_the_order_depends_on_seed_and_epoch_and_on_nothing_else():
    first, second = Batches(numbered(50), 8, seed=1), Batches(numbered(50), 8, seed=1)
    second.set_epoch(4)
    late = order(second)
    second.set_epoch(0)
    assert order(first) == order(first) == order(second)
    assert late != order(first)
    first.set_epoch(4)
    assert order(first) == late
    assert order(Batches(numbered(50), 8, seed=2)) != order(second)


def test_iterating_leaves_the_global_generator_alone():
    state = torch.get_rng_state()
    order(Batches(numbered(50), 8, seed=1))
    assert torch.equal(torch.get_rng_state(), state)


def test_a_batch_can_be_had_without_the_ones_before_it():
    batches = Batches(numbered(50), 8, seed=1)
    batches.set_epoch(3)
    for index, (inputs, labels) in enumerate(batches):
        direct_inputs, direct_labels = Batches(numbered(50), 8, seed=1).batch(3, index)
        assert torch.equal(direct_inputs, inputs)
        assert torch.equal(direct_labels, labels)


def test_choosing_another_epoch_does_not_disturb_an_iteration_under_way():
    batches = Batches(numbered(50), 8, seed=1)
    expected = order(batches)
    seen = []
    for _, labels in batches:
        batches.set_epoch(9)
        seen += labels.tolist()
    assert seen == expected


def test_an_order_is_drawn_once_until_something_it_depends_on_is_another(monkeypatch):
    drawn = []
    draw = Batches._draw_order
    monkeypatch.setattr(Batches, "_draw_order", lambda *given: drawn.append(given) or draw(*given))
    batches = Batches(numbered(20), 6, 0)
    for index in range(4):
        batches.batch(1, index)
    assert len(drawn) == 1
    changes = {"seed": 5, "shuffle": False, "batch_size": 4, "split": numbered(9)}
    for name, value in changes.items():
        setattr(batches, name, value)
        fresh = Batches(batches.split, batches.batch_size, batches.seed, batches.shuffle)
        for ours, theirs in zip(batches.batch(1, 1), fresh.batch(1, 1), strict=True):
            assert torch.equal(ours, theirs)
    assert len(drawn) == 1 + 2 * len(changes)


def test_without_shuffling_examples_come_in_their_own_order():
    batches = Batches(numbered(7), 3, seed=1, shuffle=False)
    assert [labels.tolist() for _, labels in batches] == [[0, 1, 2], [3, 4, 5], [6]]


@pytest.mark.parametrize("index", [-1, 7])
def test_a_batch_outside_the_epoch_is_refused(index):
    with pytest.raises(ConfigError, match=rf"index must lie in 0\.\.6, got {index}"):
        Batches(numbered(50), 8, seed=1).batch(0, index)


def test_empty_batches_and_empty_splits_are_refused():
    with pytest.raises(ConfigError, match="batch_size must be a whole number >= 1, got 0"):
        Batches(numbered(5), 0, seed=0)
    with pytest.raises(ConfigError, match="the split has no examples"):
        Batches(numbered(0), 4, seed=0)


@pytest.mark.parametrize(
    ("split", "sentence"),
    [
        (
            (torch.ones(4, 2), torch.zeros(4)),
            r"got a tuple; write hardstep.data.Split\(inputs, lab",
        ),
        (digits(0), "got a DataSet; give its part .train or .valid"),
        (torch.ones(4, 2), "got a Tensor$"),
    ],
)
def test_what_is_no_split_is_refused_with_the_way_out(split, sentence):
    with pytest.raises(ConfigError, match=f"^Batches: split must be a Split such as .*{sentence}"):
        Batches(split, 2, seed=0)


@pytest.mark.parametrize("size", ["8", 8.5, True])
def test_a_size_that_is_no_whole_number_is_refused(size):
    with pytest.raises(ConfigError, match=f"batch_size must be a whole number >= 1, got {size!r}"):
        Batches(digits(0).train, size, seed=0)
