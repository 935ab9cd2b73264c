"""Run commands of the pages as a reader would; record what they print and draw the pictures.

    python -m benchmarks.runs.tutorial

A task of a page is the page's own first block. What the commands print goes to
benchmarks/results/tutorial.json, from where `python -m benchmarks.pages.results` writes it into the
pages; the tutorial's pictures go to docs/images.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from hardstep._files import provenance

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGE, OWN_TASK, IMAGES = DOCS / "tutorial.md", DOCS / "how-to" / "own-task.md", DOCS / "images"
RECORD = ROOT / "benchmarks" / "results" / "tutorial.json"
COMMANDS = {
    "tutorial, train": "train spikes.py:task",
    "tutorial, diagnose": "diagnose spikes.py:task --probe-radius 0.0001 --picture diagnosis.png",
    "own task, train": "train stairs.py:sine",
    "compare": "compare mlp --methods polystep,openai-es,cma-es --match evals --seeds 3",
}
PICTURES = {
    "runs/spikes-task-own-seed0/picture.png": "tutorial-run.png",
    "spikes.png": "tutorial-spikes.png",
    "diagnosis.png": "tutorial-diagnosis.png",
}


def parts() -> dict[str, str]:
    """What the pages show of it, by name."""
    recorded = json.loads(RECORD.read_text())
    return {name: f"```text\n{recorded[name]['printed']}\n```" for name in COMMANDS}


def main() -> None:
    """Run the commands, then the page's Python, in an empty folder."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        blocks = _find_blocks(PAGE)
        (folder / "spikes.py").write_text(blocks[0])
        (folder / "stairs.py").write_text(_find_blocks(OWN_TASK)[0])
        recorded = {
            name: {"command": f"hardstep {command}", "printed": _run(command.split(), folder)}
            for name, command in COMMANDS.items()
        }
        (folder / "rest.py").write_text("\n".join(blocks[1:]))
        subprocess.run([sys.executable, "rest.py"], cwd=folder, env=_environment(), check=True)
        for source, target in PICTURES.items():
            shutil.copy(folder / source, IMAGES / target)
    source = provenance() | {"command": "python -m benchmarks.runs.tutorial"}
    RECORD.write_text(json.dumps(recorded | source, indent=1, ensure_ascii=False) + "\n")


def _find_blocks(page: Path) -> list[str]:
    return re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)


def _run(arguments: list[str], folder: Path) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "hardstep", *arguments],
        cwd=folder,
        env=_environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=True,
    )
    return "\n".join(line.rstrip() for line in done.stdout.strip("\n").splitlines())


def _environment() -> dict[str, str]:
    return os.environ | {"PYTHONPATH": str(ROOT / "src"), "MPLBACKEND": "Agg"}


if __name__ == "__main__":
    main()
