"""Data sets with a guarded test part, and seeded minibatches over them."""

from hardstep.data.archives import Archive, download, locate
from hardstep.data.batches import Batches
from hardstep.data.dataset import DataSet, Split, concatenate, hold_out
from hardstep.data.digits import digits, digits_and_negatives, load_digits
from hardstep.data.tensors import from_tensors
from hardstep.data.vision import fashion_mnist, mnist, mnist_and_fashion, read_idx

__all__ = [
    "Archive",
    "Batches",
    "DataSet",
    "Split",
    "concatenate",
    "digits",
    "digits_and_negatives",
    "download",
    "fashion_mnist",
    "from_tensors",
    "hold_out",
    "load_digits",
    "locate",
    "mnist",
    "mnist_and_fashion",
    "read_idx",
]
