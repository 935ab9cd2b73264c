import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from .killed_run import STEPS

ROOT = Path(__file__).parents[2]
KILLS = 8


@pytest.mark.slow
def test_a_run_killed_again_and_again_ends_bit_identical_to_one_left_alone(tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "tests.training.killed_run", str(tmp_path), str(KILLS)],
        cwd=ROOT,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    calm, harried = map(json.loads, done.stdout.splitlines())
    assert (calm["killed"], harried["killed"]) == (0, KILLS)
    assert calm["step"] == harried["step"] == STEPS
    assert harried["weights"] == calm["weights"]
    assert harried["history"] == calm["history"]
    assert harried["logged"] == list(range(1, STEPS + 1))
