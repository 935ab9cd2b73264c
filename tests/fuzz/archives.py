"""Target: the packed files of MNIST and its like."""

import gzip
import struct
from pathlib import Path
from random import Random

import torch

from hardstep.data.vision import read_idx
from hardstep.errors import HardstepError
from tests.fuzz.answers import ACCEPTED, Fault, refuse
from tests.fuzz.damage import damage_binary
from tests.fuzz.target import Case, Target

FILE = Path("train-images-idx3-ubyte.gz")


class Archive(Target):
    """An IDX file: refused, or the array that its bytes say."""

    name = "archive"

    def prepare(self) -> None:
        """Four pictures of five by three."""
        header = bytes([0, 0, 8, 3]) + struct.pack(">3I", 4, 5, 3)
        Path("kept").write_bytes(header + bytes(range(60)))

    def open(self) -> None:
        """The sample."""
        self.raw = Path("kept").read_bytes()
        self.packed = gzip.compress(self.raw, mtime=0)
        FILE.write_bytes(self.packed)

    def vary(self, rng: Random) -> Case:
        """Damaged after packing, or packed with other content."""
        if rng.random() < 0.5:
            return Case(damage_binary(self.packed, rng, [self.packed]), exact=True)
        raw = self.raw
        if rng.random() < 0.3:  # sizes at the edge
            sizes = [rng.choice((0, 1, 2**31, 2**32 - 1)) for _ in range(3)]
            raw = raw[:4] + struct.pack(">3I", *sizes) + raw[16:]
        return Case(gzip.compress(damage_binary(raw, rng, [self.raw]), mtime=0))

    def read(self, case: Case) -> str:
        """As the data set does."""
        FILE.write_bytes(case.content)
        try:
            found = read_idx(FILE, num_dims=3)
        except HardstepError as error:
            return refuse(error, case.content.decode("latin-1"))
        raw = self.raw if case.exact else gzip.decompress(case.content)
        shape = struct.unpack(">3I", raw[4:16])
        expected = torch.tensor(list(raw[16:]), dtype=torch.uint8)
        if tuple(found.shape) != shape or not torch.equal(found.flatten(), expected):
            raise Fault("an archive gives another array", "data/vision.py")
        return ACCEPTED
