"""Executors of other packages, as the documentation shows them."""

import os
from concurrent.futures import Executor, ThreadPoolExecutor
from pathlib import Path

import pytest

from hardstep.distributed import Futures

from .problems import TRAIN

pytestmark = [
    pytest.mark.ray,  # with Ray's tests, in a target of their own: each starts processes
    pytest.mark.filterwarnings("ignore"),  # theirs
]
ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def _path(monkeypatch):
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT / "src"), str(ROOT)]))


def test_loky():
    loky = pytest.importorskip("loky")
    with loky.ProcessPoolExecutor(2) as pool:
        assert TRAIN["spiking"](Futures(pool, 2)) == TRAIN["spiking"](None)


def test_dask():
    dask = pytest.importorskip("distributed")
    options = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": None}
    with dask.LocalCluster(host="127.0.0.1", **options) as cluster, dask.Client(cluster) as client:
        engine = Futures(client.get_executor(pure=False), 2)
        assert TRAIN["spiking"](engine) == TRAIN["spiking"](None)


class Jobs(Executor):
    """Submitit's jobs as futures."""

    def __init__(self, jobs):
        self.jobs, self.threads = jobs, ThreadPoolExecutor(4)

    def submit(self, function, *args):
        return self.threads.submit(self.jobs.submit(function, *args).result)


def test_submitit(tmp_path):
    submitit = pytest.importorskip("submitit")
    jobs = Jobs(submitit.LocalExecutor(folder=tmp_path))
    engine = Futures(jobs, 1, tiles=1)
    assert TRAIN["closure"](engine, steps=1) == TRAIN["closure"](None, steps=1)
    assert engine.counts.needs == 1  # a new process for every tile
    jobs.threads.shutdown()
