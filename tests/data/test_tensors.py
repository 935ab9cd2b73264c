import numpy as np
import pytest
import torch

from hardstep.data import from_tensors
from hardstep.errors import ConfigError, DataError


def classes(counts=(50, 30, 20)):
    """Examples whose input is their number, in the order of their class."""
    labels = torch.repeat_interleave(torch.arange(len(counts)), torch.tensor(counts))
    return torch.arange(float(len(labels)))[:, None], labels


def numbers(split):
    return split.inputs[:, 0].long().tolist()


def test_every_example_is_in_exactly_one_part():
    data = from_tensors(*classes(), seed=3)
    parts = [data.train, data.valid, data.open_test()]
    assert [len(part) for part in parts] == [72, 8, 20]
    assert sorted(sum(map(numbers, parts), [])) == list(range(100))
    assert data.num_classes == 3


@pytest.mark.parametrize("seed", range(5))
def test_every_part_has_its_share_of_every_class_to_within_one_example(seed):
    counts = torch.tensor([50, 31, 17, 2])
    data = from_tensors(*classes(counts.tolist()), seed=seed, valid=0.25, test=0.3)
    held = torch.bincount(data.open_test().labels, minlength=4)
    assert ((held - 0.3 * counts).abs() < 1).all()
    chosen = torch.bincount(data.valid.labels, minlength=4)
    assert ((chosen - 0.25 * (counts - held)).abs() < 1).all()


def test_the_seed_changes_the_validation_part_and_never_the_test_part():
    first, again, other = (from_tensors(*classes(), seed=seed) for seed in (1, 1, 2))
    assert numbers(first.valid) == numbers(again.valid) != numbers(other.valid)
    assert numbers(first.open_test()) == numbers(other.open_test())


def test_numbers_to_predict_have_no_classes_and_take_the_models_precision():
    inputs, targets = np.linspace(0, 1, 40)[:, None], np.linspace(0, 1, 40)[:, None]
    data = from_tensors(inputs, targets, seed=0, name="line")
    assert repr(data) == "DataSet(line: 29 train, 3 valid, 8 test)"
    assert data.train.inputs.dtype == data.train.labels.dtype == torch.float32
    torch.testing.assert_close(data.train.inputs, data.train.labels)


def test_whole_number_labels_of_any_type_are_classes():
    inputs, labels = classes()
    assert from_tensors(inputs, labels.to(torch.uint8), seed=0).train.labels.dtype == torch.long


def test_a_test_set_that_exists_is_taken_whole():
    data = from_tensors(*classes(), seed=0, test=classes((2, 2, 2, 3)))
    assert (len(data.train), len(data.valid), data.num_classes) == (90, 10, 4)
    assert numbers(data.open_test()) == list(range(9))


@pytest.mark.parametrize(
    ("examples", "options", "error", "message"),
    [
        ((torch.zeros(3, 1), torch.zeros(2)), {}, DataError, "3 inputs but 2 labels"),
        ((torch.zeros(3, 1).byte(), torch.zeros(3)), {}, DataError, "inputs must be floating"),
        (([["a"]], [1]), {}, DataError, "own: examples are not tensors or arrays of numbers"),
        ((torch.zeros(0, 1), torch.zeros(0)), {}, DataError, "own: there are no examples"),
        (classes(), {"test": 1.0}, ConfigError, "own: test share 1.0 of 100 examples leaves one"),
        (classes(), {"valid": 0.001}, ConfigError, "own: valid share 0.001 of 80 examples leaves"),
    ],
)
def test_what_cannot_be_split_is_refused(examples, options, error, message):
    with pytest.raises(error, match=message):
        from_tensors(*examples, seed=0, **options)
