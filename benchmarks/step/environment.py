"""The published package in an environment of its own, so that it can never meet ours."""

import subprocess
import sys
from pathlib import Path

from benchmarks.step.records import BENCHMARKS

# The same torch on both sides, or the comparison would be one of torch versions.
PACKAGES = ("torch==2.13.0", "polystep==1.1.0")
CONSTRAINTS = BENCHMARKS.parent / "constraints.txt"


def python_of(folder: Path) -> Path:
    """The interpreter of the environment, which is created and filled if need be."""
    python, stamp = folder / "bin" / "python", folder / ".installed"
    wanted = "\n".join(PACKAGES)
    if stamp.exists() and stamp.read_text() == wanted:
        return python
    print(f"installing {' and '.join(PACKAGES)} in {folder}", flush=True)
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, "-c", str(CONSTRAINTS), *PACKAGES], check=True)
    stamp.write_text(wanted)
    return python
