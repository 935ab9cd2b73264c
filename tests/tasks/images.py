"""Tiny MNIST and Fashion-MNIST folders of random pixels, for tests."""

import numpy as np

from tests.data.conftest import write_idx


def write_images(folder, train=60, test=20):
    """Fill a folder for HARDSTEP_DATA with that many images of either data set."""
    rng = np.random.default_rng(0)
    for name in ("mnist", "fashion-mnist"):
        for part, count in (("train", train), ("t10k", test)):
            pixels = rng.integers(0, 256, (count, 28, 28))
            write_idx(folder / name / f"{part}-images-idx3-ubyte.gz", pixels)
            write_idx(folder / name / f"{part}-labels-idx1-ubyte.gz", np.arange(count) % 10)
