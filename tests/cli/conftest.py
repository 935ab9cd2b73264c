"""What tests of several commands share."""

import pytest

from tests.cli.program import hardstep


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A short run, and what training it printed."""
    folder = tmp_path_factory.mktemp("runs") / "mlp"
    return folder, hardstep("train", "mlp", "--steps", 3, "--seed", 4, "--out", folder, "--json")
