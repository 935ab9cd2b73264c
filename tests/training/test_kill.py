import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def finished(folder: Path, kills: int) -> dict:
    folder.mkdir()
    command = [sys.executable, "-m", "tests.training.killed_run", str(folder), str(kills)]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.slow
def test_a_run_killed_twenty_times_ends_bit_identical_to_one_left_alone(tmp_path):
    calm = finished(tmp_path / "calm", kills=0)
    harried = finished(tmp_path / "harried", kills=20)
    assert harried["killed"] == 20
    assert calm["step"] == harried["step"] == 1200
    assert harried["weights"] == calm["weights"]
    assert harried["history"] == calm["history"]
    assert harried["logged"] == list(range(1, 1201))
