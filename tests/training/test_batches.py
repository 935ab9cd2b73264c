import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from hardstep.data import Batches, Split
from hardstep.errors import DataError
from hardstep.training.batches import Stream, split_batch


def loader(**options):
    return DataLoader(TensorDataset(torch.arange(20)), batch_size=3, shuffle=True, **options)


def order(stream, epoch, skip=0):
    return [batch[0].tolist() for batch in stream.epoch(epoch, skip)]


@pytest.mark.parametrize("own_generator", [False, True])
def test_a_shuffling_loader_gives_the_same_order_for_the_same_seed_and_epoch(own_generator):
    def fresh():
        return Stream(
            loader(generator=torch.Generator().manual_seed(5) if own_generator else None), seed=7
        )

    first, second = fresh(), fresh()
    order(second, 0)  # a stream that has already been through another epoch
    assert order(first, 3) == order(second, 3)
    assert order(first, 3) != order(first, 4)
    assert sorted(sum(order(first, 3), [])) == list(range(20))


def test_skipping_gives_the_rest_of_the_epoch():
    stream = Stream(loader(), seed=1)
    assert order(stream, 2, skip=4) == order(stream, 2)[4:]


def test_other_seeds_and_other_generators_of_the_loader_give_other_orders():
    assert order(Stream(loader(), seed=1), 0) != order(Stream(loader(), seed=2), 0)
    streams = [Stream(loader(generator=torch.Generator().manual_seed(s)), seed=1) for s in (1, 2)]
    assert order(streams[0], 0) != order(streams[1], 0)


def test_random_transforms_see_the_same_numbers_after_skipping():
    class Noisy(torch.utils.data.Dataset):
        def __len__(self):
            return 6

        def __getitem__(self, index):
            return torch.rand(())

    stream = Stream(DataLoader(Noisy(), batch_size=1), seed=0)
    whole = [float(batch) for batch in stream.epoch(0)]
    assert [float(batch) for batch in stream.epoch(0, skip=3)] == whole[3:]


def test_the_global_generator_is_left_alone():
    torch.manual_seed(0)
    before = torch.get_rng_state()
    order(Stream(loader(), seed=1), 0)
    assert torch.equal(before, torch.get_rng_state())


def test_set_epoch_is_called():
    split = Split(torch.arange(10.0)[:, None], torch.arange(10))
    batches = Batches(split, 4, seed=0)
    stream = Stream(batches, seed=0)
    for epoch in (0, 5):
        batches.set_epoch(epoch)
        expected = [y.tolist() for _, y in batches]
        batches.set_epoch(99)
        assert [y.tolist() for _, y in stream.epoch(epoch)] == expected


def test_a_used_up_generator_is_refused():
    stream = Stream((batch for batch in [1, 2]), seed=0)
    assert list(stream.epoch(0)) == [1, 2]
    with pytest.raises(DataError, match="iterated again"):
        list(stream.epoch(1))


def test_a_pair_is_inputs_and_target_and_anything_else_is_inputs():
    assert split_batch((1, 2)) == (1, 2)
    assert split_batch([1, 2]) == (1, 2)
    assert split_batch({"x": 1}) == ({"x": 1}, None)
    assert split_batch((1, 2, 3)) == ((1, 2, 3), None)
