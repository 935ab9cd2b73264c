"""Sentences as numbers of words: any labeled sentences, SST-2, and reviews made here.

    sentences ──► words that occur at least twice in the training part ──► numbers, padded with 0

Other words are one unknown word. Words are what stands between spaces, in lower case.

SST-2 (Socher et al. 2013): 67,349 phrases and sentences of film reviews, 0 negative and 1 positive.
The 872 sentences of its validation part are the test part here; validation is drawn from training.
It is not bundled, so tests and demonstrations use `reviews`, which are made here.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path

import torch
from torch import Tensor

from hardstep._checks import check_count
from hardstep.data.archives import list_folders
from hardstep.data.dataset import DataSet, Split, hold_out
from hardstep.data.features import SST2_FOLDER
from hardstep.data.tsv_files import read_sentences
from hardstep.errors import DataError
from hardstep.seeds import generator

PADDING, UNKNOWN = 0, 1
LONGEST = 127  # words of a sentence that are read; with a class token, 128
LEAST = 2  # times that a word has to occur
_SST2_FILES = ("train.tsv.gz", "validation.tsv.gz")
REVIEWS = 1_200  # sentences made here
Labeled = tuple[Sequence[str], Sequence[int]]  # sentences and their classes


@dataclass(frozen=True)
class Vocabulary:
    """The words that have a number of their own, the most frequent one first."""

    words: tuple[str, ...]

    @classmethod
    def count(cls, sentences: Iterable[str], least: int = LEAST) -> "Vocabulary":
        """Of the words that occur at least so many times.

        Raises:
            DataError: No word does.
        """
        check_count("Vocabulary: least", least)
        found = Counter(word for sentence in sentences for word in cut_words(sentence))
        often = sorted((-times, word) for word, times in found.items() if times >= least)
        if not often:
            raise DataError(
                f"none of the {len(found):,} words of these sentences occurs {least} times; give "
                "more sentences, or put spaces between words"
            )
        return cls(tuple(word for _, word in often))

    def __len__(self) -> int:
        """How many numbers there are, those of padding and of unknown words included."""
        return UNKNOWN + 1 + len(self.words)

    def name(self, number: int) -> str:
        """The word of a number above `UNKNOWN`."""
        return self.words[number - UNKNOWN - 1]

    @cached_property
    def _numbers(self) -> dict[str, int]:
        return {word: number for number, word in enumerate(self.words, UNKNOWN + 1)}

    def encode(self, sentences: Sequence[str], longest: int = LONGEST) -> Tensor:
        """The words of sentences by number, (N, length of the longest one), padded with zeros.

        Args:
            sentences: Each at least a word.
            longest: Later words are left out.
        """
        rows = [
            [self._numbers.get(word, UNKNOWN) for word in cut_words(sentence)[:longest]]
            for sentence in sentences
        ]
        width = max(map(len, rows), default=0)
        padded = [row + [PADDING] * (width - len(row)) for row in rows]
        return torch.tensor(padded, dtype=torch.long).reshape(len(rows), width)


def cut_words(sentence: str) -> list[str]:
    """What stands between spaces, in lower case."""
    return sentence.lower().split()


@dataclass(frozen=True, eq=False)
class Corpus:
    """Labeled sentences in two parts, with the words of the training part.

    Args:
        name: What it is called.
        train: To learn from and to choose by.
        test: For the number at the end.
        valid: Share of the training part that is for validation.
    """

    name: str
    train: Labeled = field(repr=False)
    test: Labeled = field(repr=False)
    valid: float = 0.1

    @cached_property
    def vocabulary(self) -> Vocabulary:
        """The words of the training part that occur at least twice."""
        return Vocabulary.count(self.train[0])

    def split(self, seed: int) -> DataSet:
        """Training, validation and guarded test part; the seed draws the validation part."""
        train, valid = hold_out(self._parts[0], seed, self.valid)
        return DataSet(self.name, train, valid, self._parts[1], num_classes=2)

    @cached_property
    def _parts(self) -> tuple[Split, Split]:
        """Training and test part as numbers."""
        return self._encode(self.train), self._encode(self.test)

    def _encode(self, given: Labeled) -> Split:
        inputs = self.vocabulary.encode(given[0])
        return Split(inputs, torch.tensor(given[1]), (inputs != PADDING).sum(dim=1))


def read_corpus(path: Path | str, test: Path | str | None = None, name: str = "text") -> Corpus:
    """Sentences of a tab-separated file, as `read_sentences` reads it.

    Args:
        path: The file.
        test: A file with the test part; if left out, a fifth of the sentences, the same for
            every seed.
        name: What the data are called.

    Raises:
        DataError: A file cannot be read or a line is at fault.
    """
    given = read_sentences(path)
    return hold_out_test(name, given) if test is None else Corpus(name, given, read_sentences(test))


def hold_out_test(name: str, given: Labeled) -> Corpus:
    """A fifth of the sentences as the test part.

    Raises:
        DataError: There are fewer than five.
    """
    sentences, labels = given
    num = len(sentences) // 5
    if not num:
        raise DataError(f"{name}: {len(sentences)} sentences are too few; give at least 5")
    order = torch.randperm(len(sentences), generator=generator(0, "test part")).tolist()
    train, test = (
        ([sentences[i] for i in chosen], [labels[i] for i in chosen])
        for chosen in (sorted(order[num:]), sorted(order[:num]))
    )
    return Corpus(name, train, test)


def sst2(seed: int = 0) -> DataSet:
    """About 64,000 phrases, 3,400 for validation, 872 test sentences; inputs are words by number.

    Raises:
        DataError: A file is missing or at fault.
    """
    return load_sst2().split(seed)


def load_sst2() -> Corpus:
    """SST-2 from the folder `sst2` in HARDSTEP_DATA or in the cache."""
    folders = list_folders(SST2_FOLDER)
    for folder in folders:
        if all((folder / name).is_file() for name in _SST2_FILES):
            return _read_sst2(folder)
    raise DataError(
        f"sst2: there are no {' and '.join(_SST2_FILES)} in {' or '.join(map(str, folders))}; "
        "gzip train.tsv and dev.tsv of GLUE's SST-2 under these names, put them into a folder sst2 "
        "and set HARDSTEP_DATA to the folder above it"
    )


@cache
def _read_sst2(folder: Path) -> Corpus:
    train, test = (read_sentences(folder / name) for name in _SST2_FILES)
    return Corpus("sst2", train, test, valid=0.05)


# -- reviews made here ------------------------------------------------------------------------

_PRAISE = ("good", "great", "fine", "clever", "warm", "funny", "bright", "honest", "lovely")
_BLAME = ("bad", "dull", "weak", "stale", "cold", "clumsy", "flat", "false", "ugly")
_OTHERS = (
    *("film", "story", "plot", "cast", "script", "music", "camera", "ending", "scene", "hero"),
    *("the", "a", "this", "its", "and", "of", "in", "with", "very", "quite", "rather", "so"),
)
_WORDS = (4, 16)  # of a sentence, at least and below


def reviews(seed: int = 0) -> DataSet:
    """Short reviews of films made here, 0 negative and 1 positive; the seed draws validation."""
    return load_reviews().split(seed)


@cache
def load_reviews() -> Corpus:
    """The same ones every time."""
    return hold_out_test("reviews", draw_reviews())


def draw_reviews(num: int = REVIEWS, seed: int = 0) -> tuple[list[str], list[int]]:
    """Sentences of words drawn at random: more praise than blame, or the other way round."""
    check_count("draw_reviews: num", num)
    draws = generator(seed, "reviews")
    sentences, labels = [], []
    for number in range(num):
        praise = number % 2
        counts = [_draw(draws, 0, 2), _draw(draws, 2, 4)]  # of the other kind, and of this one
        words = _choose(draws, _PRAISE, counts[praise]) + _choose(draws, _BLAME, counts[1 - praise])
        words += _choose(draws, _OTHERS, _draw(draws, *_WORDS))
        order = torch.randperm(len(words), generator=draws).tolist()
        sentences.append(" ".join(words[i] for i in order))
        labels.append(praise)
    return sentences, labels


def _draw(draws: torch.Generator, low: int, high: int) -> int:
    return int(torch.randint(low, high, (), generator=draws))


def _choose(draws: torch.Generator, words: Sequence[str], num: int) -> list[str]:
    return [words[_draw(draws, 0, len(words))] for _ in range(num)]
