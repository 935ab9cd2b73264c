"""Ray: the bits of one process, actors that die and come back, boards with names."""

import json
import os
import subprocess
import sys
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path

import pytest

if find_spec("ray") is None:
    pytest.skip("Ray is not installed", allow_module_level=True)

from hardstep import PolyStep, minimize  # noqa: E402
from hardstep.distributed import Patience, Ray  # noqa: E402
from hardstep.errors import ConfigError, WorkerError  # noqa: E402
from hardstep.nn import build  # noqa: E402

from .problems import TRAIN  # noqa: E402
from .test_futures import bowl  # noqa: E402

pytestmark = [
    pytest.mark.ray,
    # Ray's own, at its end.
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
]
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def workers():
    os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
    with Ray(workers=2) as engine:
        yield engine


@pytest.mark.parametrize("name", TRAIN)
def test_actors_come_to_the_bits_of_one_process(name, workers):
    assert TRAIN[name](workers) == TRAIN[name](None)


def listening(pids):
    """Addresses at which these processes wait for connections, as the kernel lists them."""
    inodes = set()
    for pid in pids:
        folder = Path(f"/proc/{pid}/fd")
        for link in folder.iterdir() if folder.exists() else ():
            try:
                target = os.readlink(link)
            except OSError:
                continue
            if target.startswith("socket:["):
                inodes.add(target[8:-1])
    found = set()
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            words = line.split()
            if words[3] == "0A" and words[9] in inodes:
                found.add(words[1].split(":")[0])
    return found


LOOPBACK = {"0100007F", "0" * 24 + "01000000", "0000000000000000FFFF00000100007F"}


def test_nothing_listens_on_other_than_loopback(workers):
    import psutil

    raylets = [p.pid for p in psutil.Process().children(recursive=True)]
    assert raylets
    assert listening([os.getpid(), *raylets]) <= LOOPBACK


def test_an_actor_that_is_killed_comes_back(workers):
    import psutil

    killed = [p for p in psutil.Process().children(recursive=True) if "_Actor" in p.name()]
    killed = killed or [
        p for p in psutil.Process().children(recursive=True) if "ray::" in " ".join(p.cmdline())
    ]
    killed[0].kill()
    assert TRAIN["closure"](workers) == TRAIN["closure"](None)


def test_minimize_on_actors(workers):
    alone, shared = (minimize(bowl, [3.0, -2.0], max_evals=60, workers=w) for w in (None, workers))
    assert shared.x.tolist() == alone.x.tolist()


class Board:
    """A device that has to be calibrated before it answers."""

    offsets: dict[str, float] = {}

    @classmethod
    def calibrate(cls, name):
        if name == "broken":
            raise OSError("no such board")
        cls.offsets[name] = 0.0

    def __init__(self, model):
        self.model = model

    def __call__(self):
        assert self.offsets, "a board that nobody has calibrated"
        return float(sum(p.detach().round().abs().sum() for p in self.model.parameters()))


def test_boards_have_names_and_are_calibrated_and_a_broken_one_is_left_out(workers):
    import torch

    def train(evaluator):
        Board.offsets["here"] = 0.0
        model = build(lambda: torch.nn.Linear(4, 3), 0)
        opt = PolyStep(model, evaluator=evaluator)
        for _ in range(2):
            opt.step(Board(model))
        return [p.tolist() for p in model.parameters()]

    names = ["north", "south", "broken"]
    options = {"num_cpus": 0, "max_restarts": 0}
    boards = Ray(
        names=names, prepare=Board.calibrate, options=options, patience=Patience(timeout=60)
    )
    assert train(boards) == train(None)
    assert boards.counts.names <= {"north", "south"}
    boards.close()
    with pytest.raises(WorkerError, match="no Ray actor could be started"):
        Ray(names=["broken"], prepare=Board.calibrate, options=options)


def test_four_boards_that_drift_fail_and_disagree_find_better_settings(workers):
    del workers  # Ray is up
    spec = spec_from_file_location("boards", ROOT / "examples" / "boards.py")
    example = module_from_spec(spec)
    spec.loader.exec_module(example)
    before, after = example.main(steps=30)
    assert after < before / 3


def test_bad_input_is_a_sentence_and_leaves_nothing_running(tmp_path):
    with pytest.raises(ConfigError, match="names must be different words"):
        Ray(names=["a", "a"])
    words = ["train", "snn", "--steps", "2", "--ray", "127.0.0.1:1", "--out", str(tmp_path)]
    done = subprocess.run(
        [sys.executable, "-m", "hardstep", *words],
        env=os.environ | {"PYTHONPATH": str(ROOT / "src")},
        capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.returncode == 2
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith("hardstep: Ray could not be reached at 127.0.0.1:1")


def test_the_command_trains_on_ray(tmp_path, workers):
    del workers  # one Ray at a time is enough for a small machine; this one starts its own
    words = ["train", "snn", "--steps", "3", "--json", "--ray", "--workers", "2", "--out"]
    done = subprocess.run(
        [sys.executable, "-m", "hardstep", *words, str(tmp_path / "run")],
        env=os.environ | {"PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1"},
        capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["distributed"]["workers"] >= 1
