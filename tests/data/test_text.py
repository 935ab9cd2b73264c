import gzip

import pytest
import torch

from hardstep.data import Batches, Corpus, Vocabulary, draw_reviews, load_sst2, read_corpus, reviews
from hardstep.data.text import PADDING, UNKNOWN
from hardstep.errors import DataError

SENTENCES = ["a good film", "A dull  plot", "good plot", "unheard of"]


def write(path, sentences, labels):
    lines = [f"{text}\t{label}\n" for text, label in zip(sentences, labels, strict=True)]
    opener = gzip.open if path.suffix == ".gz" else open
    with opener(path, "wt") as file:
        file.write("sentence\tlabel\n" + "".join(lines))


def test_words_that_occur_twice_have_numbers_and_sentences_are_padded():
    vocabulary = Vocabulary.count(SENTENCES)
    assert vocabulary.words == ("a", "good", "plot")
    assert len(vocabulary) == 5
    assert vocabulary.encode(SENTENCES).tolist() == [[2, 3, 1], [2, 1, 4], [3, 4, 0], [1, 1, 0]]
    assert vocabulary.encode(SENTENCES, longest=2).tolist()[0] == [2, 3]
    assert [vocabulary.name(number) for number in (2, 3, 4)] == ["a", "good", "plot"]


def test_words_of_the_test_part_count_for_nothing():
    corpus = Corpus("few", (SENTENCES * 5, [0, 1] * 10), (["unheard unheard words words"], [1]))
    assert "words" not in corpus.vocabulary.words
    test = corpus.split(0).open_test()
    numbers = test.inputs[0].tolist()
    assert numbers[0] == numbers[1] > UNKNOWN
    assert numbers[2:] == [UNKNOWN, UNKNOWN]


def test_the_seed_draws_validation_from_training_and_leaves_the_test_part(tmp_path):
    write(tmp_path / "own.tsv", *draw_reviews(100))
    corpus = read_corpus(tmp_path / "own.tsv")
    first, second = corpus.split(1), corpus.split(2)
    assert [len(part) for part in (first.train, first.valid)] == [72, 8]
    assert not torch.equal(first.valid.inputs, second.valid.inputs)
    held = first.open_test()
    assert torch.equal(held.inputs, second.open_test().inputs)
    assert len(held) == 20
    with pytest.raises(DataError, match="touched once"):
        first.open_test()


def test_sst2_is_found_where_hardstep_data_says(tmp_path, monkeypatch):
    folder = tmp_path / "sst2"
    monkeypatch.setenv("HARDSTEP_DATA", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    with pytest.raises(
        DataError, match=r"no train.tsv.gz and validation.tsv.gz in .*HARDSTEP_DATA"
    ):
        load_sst2()
    folder.mkdir()
    write(folder / "train.tsv.gz", *draw_reviews(60))
    write(folder / "validation.tsv.gz", *draw_reviews(20, seed=1))
    data = load_sst2().split(3)
    assert [len(data.train), len(data.valid), len(data.open_test())] == [57, 3, 20]


def test_reviews_have_both_classes_equally_often_and_are_always_the_same():
    sentences, labels = draw_reviews(50)
    assert sum(labels) == 25
    assert (sentences, labels) == draw_reviews(50)
    assert torch.equal(reviews(0).open_test().inputs, reviews(4).open_test().inputs)


def test_sentences_of_a_batch_are_of_about_equal_length():
    train = reviews(0).train
    lengths = [(inputs != PADDING).sum(dim=1) for inputs, _ in Batches(train, 32, seed=0)]
    spread = sum(int(some.max() - some.min()) for some in lengths[:-1]) / (len(lengths) - 1)
    assert spread < 3
    assert train.sizes.max() - train.sizes.min() > 10


def test_text_without_words_that_come_back_is_refused():
    with pytest.raises(DataError, match="none of the 4 words of these sentences occurs 2 times"):
        Vocabulary.count(["four words once each"])


def test_a_file_of_a_few_lines_is_refused(tmp_path):
    write(tmp_path / "own.tsv", ["good film", "dull film"], [1, 0])
    with pytest.raises(DataError, match="2 sentences are too few; give at least 5"):
        read_corpus(tmp_path / "own.tsv")
