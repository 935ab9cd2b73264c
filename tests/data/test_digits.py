from importlib.resources import files

import pytest
import torch

from hardstep.data import digits, digits_and_negatives, load_digits
from hardstep.errors import DataError
from tests.damage import cut_off, flip_bytes

CLASS_COUNTS = torch.tensor([178, 182, 177, 183, 181, 182, 181, 179, 174, 180])


def test_the_bundled_split_is_1437_and_360_disjoint_images():
    train, test = load_digits()
    assert (len(train), len(test)) == (1437, 360)
    assert train.inputs.shape == (1437, 64)
    together = train.labels.bincount() + test.labels.bincount()
    assert together.tolist() == CLASS_COUNTS.tolist()


def test_the_bundled_split_is_stratified_to_within_one_image():
    shares = 360 * CLASS_COUNTS / 1797
    assert (load_digits()[1].labels.bincount() - shares).abs().max() < 1.0


def test_bundled_pixels_are_whole_numbers_from_0_to_16():
    for part in load_digits():
        assert (part.inputs.min(), part.inputs.max()) == (0.0, 16.0)
        assert torch.equal(part.inputs, part.inputs.round())


def test_the_bundled_file_is_small():
    assert len(files("hardstep.data").joinpath("digits.npz").read_bytes()) < 100_000


def test_ten_percent_of_train_is_held_out_by_the_seed():
    data, same, other = digits(0), digits(0), digits(1)
    assert (len(data.train), len(data.valid), len(data.open_test())) == (1294, 143, 360)
    assert data.num_classes == 10
    assert torch.equal(data.valid.inputs, same.valid.inputs)
    assert not torch.equal(data.valid.inputs, other.valid.inputs)


def test_train_and_valid_together_are_the_training_images():
    data, (whole, _) = digits(7), load_digits()
    mean, deviation = whole.inputs.mean(), whole.inputs.std(correction=0)

    def rows(split, back):
        pixels = split.inputs * deviation + mean if back else split.inputs
        return [tuple(row) for row in pixels.round().int().tolist()]

    parts = rows(data.train, back=True) + rows(data.valid, back=True)
    assert sorted(parts) == sorted(rows(whole, back=False))


def test_pixels_are_standardized_with_the_training_images():
    data = digits(0)
    pixels = torch.cat([data.train.inputs, data.valid.inputs]).double()
    assert pixels.mean().item() == pytest.approx(0.0, abs=1e-6)
    assert pixels.std(correction=0).item() == pytest.approx(1.0, abs=1e-6)
    # black and white are one pair of numbers in every part and for every seed
    expected = ((0.0 - 4.8885) / 6.0178, (16.0 - 4.8885) / 6.0178)
    for part in (data.train, data.valid, data.open_test(), digits(5).train):
        ends = (part.inputs.min().item(), part.inputs.max().item())
        assert ends == pytest.approx(expected, abs=1e-4)


def test_the_test_part_is_the_same_for_every_seed():
    assert torch.equal(digits(0).open_test().inputs, digits(1).open_test().inputs)


def test_negatives_double_every_part_and_carry_labels_10_to_19():
    data = digits_and_negatives(0)
    test = data.open_test()
    assert (len(data.train), len(data.valid), len(test)) == (2588, 286, 720)
    assert data.num_classes == 20
    assert torch.equal(test.labels[360:], test.labels[:360] + 10)
    assert data.train.labels.unique().tolist() == list(range(20))


def test_a_negative_is_its_image_mirrored_about_the_mean():
    # 16 - x, standardized about the common mean 8, is minus the standardized x
    data = digits_and_negatives(0)
    for part in (data.train, data.valid, data.open_test()):
        half = len(part) // 2
        torch.testing.assert_close(part.inputs[half:], -part.inputs[:half], rtol=0.0, atol=1e-5)


def test_pixels_of_digits_and_negatives_are_standardized():
    data = digits_and_negatives(0)
    pixels = torch.cat([data.train.inputs, data.valid.inputs]).double()
    assert pixels.mean().item() == pytest.approx(0.0, abs=1e-6)
    assert pixels.std(correction=0).item() == pytest.approx(1.0, abs=1e-6)


def test_an_image_and_its_negative_are_held_out_together():
    plain, both = digits(3), digits_and_negatives(3)
    assert torch.equal(both.valid.labels[:143], plain.valid.labels)
    assert torch.equal(both.valid.labels[143:], plain.valid.labels + 10)


def test_a_damaged_file_is_refused_in_one_sentence(tmp_path, monkeypatch):
    content = files("hardstep.data").joinpath("digits.npz").read_bytes()
    monkeypatch.setitem(load_digits.__globals__, "files", lambda package: tmp_path)
    with pytest.raises(DataError, match="digits.npz cannot be read .*; install hardstep again"):
        load_digits()
    for damaged in (*flip_bytes(content, every=5000), *cut_off(content, every=20000)):
        (tmp_path / "digits.npz").write_bytes(damaged)
        with pytest.raises(DataError, match="digits.npz is damaged: .*; install hardstep again"):
            load_digits()
