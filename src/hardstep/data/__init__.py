"""Data sets with a guarded test part, and seeded minibatches over them."""

from hardstep.data.archives import Archive, download, list_folders, locate
from hardstep.data.batches import Batches
from hardstep.data.csv_files import read_column
from hardstep.data.dataset import DataSet, Split, concatenate, hold_out
from hardstep.data.digits import digits, digits_and_negatives, load_digits
from hardstep.data.features import (
    SST2_FOLDER,
    SST2_MINILM,
    SST2_SMOLLM2,
    Features,
    find_features,
    read_features,
    sst2_embeddings,
    sst2_states,
)
from hardstep.data.series import draw_waves, etth1, forecasting, waves
from hardstep.data.tensors import from_tensors
from hardstep.data.text import (
    Corpus,
    Vocabulary,
    draw_reviews,
    load_reviews,
    load_sst2,
    read_corpus,
    reviews,
    sst2,
)
from hardstep.data.tsv_files import read_sentences
from hardstep.data.vision import fashion_mnist, mnist, mnist_and_fashion, read_idx

__all__ = [
    "Archive",
    "Batches",
    "Corpus",
    "DataSet",
    "Features",
    "SST2_FOLDER",
    "SST2_MINILM",
    "SST2_SMOLLM2",
    "Split",
    "Vocabulary",
    "concatenate",
    "digits",
    "digits_and_negatives",
    "download",
    "draw_reviews",
    "draw_waves",
    "etth1",
    "fashion_mnist",
    "find_features",
    "forecasting",
    "from_tensors",
    "hold_out",
    "list_folders",
    "load_digits",
    "load_reviews",
    "load_sst2",
    "locate",
    "mnist",
    "mnist_and_fashion",
    "read_column",
    "read_corpus",
    "read_features",
    "read_idx",
    "read_sentences",
    "reviews",
    "sst2",
    "sst2_embeddings",
    "sst2_states",
    "waves",
]
