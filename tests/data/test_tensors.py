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
    data = from_tensors(*classes(), seed=0, test=classes((2, 2, 2, 3)), num_classes=4)
    assert (len(data.train), len(data.valid), data.num_classes) == (90, 10, 4)
    assert numbers(data.open_test()) == list(range(9))


@pytest.mark.parametrize(
    ("examples", "options", "error", "message"),
    [
        ((torch.zeros(3, 1), torch.zeros(2)), {}, DataError, "3 inputs but 2 labels"),
        (
            (torch.zeros(3, 1).byte(), torch.zeros(3)),
            {},
            DataError,
            "inputs must be floating .*255",
        ),
        ((torch.zeros(3, 1), np.zeros(3) + 1j), {}, DataError, "labels must be .*complex128"),
        (classes(), {"test": [1, 2]}, ConfigError, "test must be a share .* or a pair .* a list"),
        (([["a"]], [1]), {}, DataError, "own: examples are not tensors or arrays of numbers"),
        ((torch.zeros(0, 1), torch.zeros(0)), {}, DataError, "own: there are no examples"),
        (classes(), {"test": 1.0}, ConfigError, "own: test share 1.0 of 100 examples leaves one"),
        (classes(), {"valid": 0.001}, ConfigError, "own: valid share 0.001 of 80 examples leaves"),
    ],
)
def test_what_cannot_be_split_is_refused(examples, options, error, message):
    with pytest.raises(error, match=message):
        from_tensors(*examples, seed=0, **options)


FEW = (torch.ones(4, 2), torch.tensor([0, 1, 1, 2]))


def changed(values, index, value):
    values = values.clone()
    values[index] = value
    return values


NUMBERS = "or floating point if they are numbers to predict"
SENTENCES = {
    "nan": (
        changed(changed(FEW[0], (1, 1), np.nan), 3, np.inf), FEW[1], {},
        "own: inputs of 2 of 4 examples are not finite, the first at [1, 1]: nan; leave these "
        "examples out, or fill in numbers",
    ),
    "too large": (
        changed(FEW[0].double(), 2, 1e300), FEW[1], {},
        "own: inputs of 1 of 4 examples are not finite, the first at [2, 0]: 1e+300, too large for "
        "torch.float32; leave these examples out, or fill in numbers",
    ),
    "nan label": (
        FEW[0], torch.tensor([0.0, 1.0, np.nan, 2.0]), {},
        "own: labels of 1 of 4 examples are not finite, the first at [2]: nan; leave these "
        "examples out, or fill in numbers",
    ),
    "negative": (
        FEW[0], FEW[1] - 1, {},
        "own: 1 of 4 labels are negative, the first at [0]: -1; number classes from 0, as "
        "numpy.unique(labels, return_inverse=True)[1] does, or give floating point if they are "
        "numbers to predict",
    ),
    "column": (
        FEW[0], FEW[1][:, None], {},
        "own: labels are whole numbers of shape (4, 1), and classes have (4,); give "
        f"labels.flatten(), {NUMBERS}",
    ),
    "one-hot": (
        FEW[0], torch.eye(3).long()[FEW[1]], {},
        "own: labels are one-hot, of shape (4, 3), and classes have (4,); give labels.argmax(1), "
        f"{NUMBERS}",
    ),
    "test label": (
        *FEW, {"test": (FEW[0], FEW[1] + 1)},
        "own: 1 of 4 test labels are none of the 3 classes 0 to 2, the first at [3]: 3; number all "
        "alike, or say num_classes=4 if there are more",
    ),
    "label": (
        *FEW, {"num_classes": 2},
        "own: 1 of 4 labels are none of the 2 classes 0 to 1, the first at [3]: 2; number all "
        "alike, or say num_classes=3 if there are more",
    ),
    "test shape": (
        *FEW, {"test": (FEW[0][:, :1], FEW[1])},
        "own: inputs of a test example are float32 of shape (1,), of one for training float32 of "
        "shape (2,); make them alike",
    ),
    "test type": (
        *FEW, {"test": (FEW[0], FEW[1].float())},
        "own: labels of a test example are float32 of shape (), of one for training int64 of "
        "shape (); make them alike",
    ),
    "test nan": (
        *FEW, {"test": (FEW[0] * np.nan, FEW[1])},
        "own: test inputs of 4 of 4 examples are not finite, the first at [0, 0]: nan; leave these "
        "examples out, or fill in numbers",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", SENTENCES)
def test_what_cannot_be_learned_from_is_refused_with_the_first_place_and_the_way_out(case):
    inputs, labels, options, sentence = SENTENCES[case]
    with pytest.raises(DataError) as refused:
        from_tensors(inputs, labels, seed=0, valid=0.5, **options)
    assert str(refused.value) == sentence


def test_classes_of_numbers_to_predict_are_not_counted():
    with pytest.raises(
        ConfigError, match="num_classes is 3, but floating-point labels are numbers"
    ):
        from_tensors(FEW[0], FEW[1].float(), seed=0, num_classes=3)


def test_a_class_may_be_without_examples_and_whole_numbers_may_be_sequences():
    inputs, labels = classes()
    assert from_tensors(inputs, 10 * labels, seed=0).num_classes == 21
    assert from_tensors(inputs, labels, seed=0, num_classes=7).num_classes == 7
    sequences = torch.stack([labels, labels + 1, labels], dim=1)
    assert from_tensors(inputs, sequences, seed=0).train.labels.shape == (72, 3)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("kind", ["reversed", "big-endian", "mapped", "lists", "half"])
def test_arrays_that_torch_cannot_share_are_copied(tmp_path, kind):
    inputs, labels = (values.numpy() for values in classes())
    np.save(tmp_path / "inputs.npy", inputs)
    given = {
        "reversed": (inputs[::-1], labels[::-1]),
        "big-endian": (inputs.astype(">f4"), labels.astype(">i2")),
        "mapped": (np.load(tmp_path / "inputs.npy", mmap_mode="r"), labels),
        "lists": (inputs.tolist(), labels.tolist()),
        "half": (inputs.astype("f2"), labels.astype("u2")),
    }[kind]
    data = from_tensors(*given, seed=0)
    parts = [data.train, data.valid, data.open_test()]
    found = {
        n: c for part in parts for n, c in zip(numbers(part), part.labels.tolist(), strict=True)
    }
    assert found == dict(enumerate(labels.tolist()))
    assert data.train.inputs.dtype == torch.float32
