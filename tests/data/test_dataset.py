import pytest
import torch

from hardstep.data import DataSet, Split, concatenate, hold_out
from hardstep.errors import ConfigError, DataError


def numbered(count):
    return Split(torch.arange(float(count))[:, None], torch.arange(count))


def test_the_test_part_opens_once():
    data = DataSet("toy", numbered(4), numbered(2), numbered(3), num_classes=4)
    assert data.test_reads == 0
    assert len(data.open_test()) == 3
    assert data.test_reads == 1
    with pytest.raises(DataError, match="DataSet toy: the test part was opened before"):
        data.open_test()


def test_the_test_part_is_closed_while_a_set_is_sealed_and_a_set_opened_before_is_not_sealed():
    data = DataSet("toy", numbered(4), numbered(2), numbered(3), num_classes=4)
    with data.seal(), pytest.raises(DataError, match="toy: the test part is sealed until"):
        data.open_test()
    assert data.test_reads == 0  # a refusal is no reading
    data.open_test()
    with pytest.raises(DataError, match="toy: the test part was opened before training"):
        data.seal().__enter__()


def test_printing_a_data_set_does_not_open_its_test_part():
    data = DataSet("toy", numbered(4), numbered(2), numbered(3), num_classes=4)
    assert repr(data) == "DataSet(toy: 4 train, 2 valid, 3 test, 4 classes)"
    data.open_test()


def test_holding_out_splits_every_example_into_exactly_one_part():
    rest, held = hold_out(numbered(57), seed=3)
    assert (len(rest), len(held)) == (52, 5)
    assert sorted(rest.labels.tolist() + held.labels.tolist()) == list(range(57))
    torch.testing.assert_close(held.inputs[:, 0].long(), held.labels)


def test_the_held_out_part_depends_on_the_seed_only():
    state = torch.get_rng_state()
    first = hold_out(numbered(100), seed=1)[1].labels
    torch.manual_seed(5)
    again, other = (hold_out(numbered(100), seed=seed)[1].labels for seed in (1, 2))
    torch.set_rng_state(state)
    assert first.tolist() == again.tolist()
    assert first.tolist() != other.tolist()


@pytest.mark.parametrize("fraction", [0.0, 0.01, 1.0])
def test_holding_out_nothing_or_everything_is_refused(fraction):
    with pytest.raises(ConfigError, match=f"fraction {fraction} of 20 examples leaves one part"):
        hold_out(numbered(20), seed=0, fraction=fraction)


def test_concatenating_keeps_order():
    both = concatenate(numbered(2), numbered(3))
    assert both.labels.tolist() == [0, 1, 0, 1, 2]
    assert both.inputs[:, 0].tolist() == [0.0, 1.0, 0.0, 1.0, 2.0]


@pytest.mark.parametrize(
    ("inputs", "labels", "message"),
    [
        (torch.zeros(3, 2), torch.zeros(2, dtype=torch.long), "3 inputs but 2 labels"),
        (torch.zeros(2, 2, dtype=torch.uint8), torch.zeros(2, dtype=torch.long), "floating point"),
        (torch.zeros(2, 2), torch.zeros(2, dtype=torch.uint8), "labels must be torch.long"),
    ],
)
def test_a_split_refuses_what_cannot_be_trained_on(inputs, labels, message):
    with pytest.raises(DataError, match=message):
        Split(inputs, labels)
