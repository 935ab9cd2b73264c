"""What tests of several commands share."""

import pytest

from tests.cli.program import hardstep


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A short run, and what training it printed."""
    folder = tmp_path_factory.mktemp("runs") / "mlp"
    return folder, hardstep("train", "mlp", "--steps", 3, "--seed", 4, "--out", folder, "--json")


@pytest.fixture
def closed(monkeypatch):
    """Nothing may run."""
    for name in ("train.fit", "compare.run_job", "tune.carry_out", "maxsat.Search",
                 "diagnose.diagnose", "theory.judge", "bench.carry_out"):  # fmt: skip
        monkeypatch.setattr(f"hardstep.cli.{name}", None)
