"""Check a release before it is uploaded: `make release-check`.

Builds the sdist and, from it, the wheel; checks their metadata and their files; installs the
wheel in an empty environment and trains with it outside the repository. Needs Python and pip only.
"""

import os
import subprocess
import sys
import tarfile
import tempfile
import venv
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
CONSTRAINTS = ROOT / "constraints.txt"
NOT_IN_SDIST = ("benchmarks/results", "benchmarks/superseded", "runs/", ".venv")
IN_SDIST = ("LICENSE", "README.md", "constraints.txt", "Makefile", "tests/conftest.py")
IN_WHEEL = (
    "hardstep/__init__.pyi",
    "hardstep/py.typed",
    "hardstep/data/digits.npz",
    "hardstep/bench/report/page.css",
    "hardstep/bench/report/page.js",
)
WRITTEN_BY_TRAIN = ("checkpoint.pt", "log.jsonl", "picture.png", "result.json")


def main() -> None:
    """Build, look inside, install, train; stops at the first thing that is wrong."""
    with tempfile.TemporaryDirectory(prefix="hardstep-release-") as name:
        folder = Path(name)
        sdist, wheel = build(folder)
        check_files(list_sdist(sdist), present=IN_SDIST, absent=NOT_IN_SDIST)
        names = list_wheel(wheel)
        check_files(names, present=IN_WHEEL, absent=())
        check_only_the_package(names)
        train(wheel, folder)
        print(f"release-check: {sdist.name} and {wheel.name} are ready", flush=True)


def build(folder: Path) -> tuple[Path, Path]:
    """Build both distributions in `folder` and check their metadata as the index would."""
    python = create_environment(folder / "tools", "build", "twine")
    dist = folder / "dist"
    run(python, "-m", "build", "--outdir", dist, ROOT)
    (sdist,), (wheel,) = dist.glob("*.tar.gz"), dist.glob("*.whl")
    run(python, "-m", "twine", "check", "--strict", sdist, wheel)
    return sdist, wheel


def list_sdist(path: Path) -> list[str]:
    """The files of an sdist, without the folder that holds them all."""
    with tarfile.open(path) as archive:
        return [name.partition("/")[2] for name in archive.getnames()]


def list_wheel(path: Path) -> list[str]:
    """The files of a wheel."""
    with zipfile.ZipFile(path) as archive:
        return archive.namelist()


def check_files(names: list[str], present: tuple[str, ...], absent: tuple[str, ...]) -> None:
    """Stop unless every name of `present`, and nothing that starts as in `absent`, is there."""
    missing = sorted(set(present) - set(names))
    if missing:
        stop(f"these files are missing: {', '.join(missing)}")
    extra = [name for name in names if name.startswith(absent)] if absent else []
    if extra:
        stop(f"{len(extra)} files do not belong in the sdist, the first is {extra[0]}")
    print(f"release-check: {len(names)} files, {', '.join(present)} among them", flush=True)


def check_only_the_package(names: list[str]) -> None:
    """Stop if the wheel would install anything beside `hardstep`."""
    extra = [n for n in names if not n.startswith("hardstep/") and ".dist-info/" not in n]
    if extra:
        stop(f"the wheel would install {', '.join(extra)} beside the package")


def train(wheel: Path, folder: Path) -> None:
    """Install the wheel in an empty environment and train with its command, elsewhere."""
    python = create_environment(folder / "empty", f"{wheel}[plot]")
    elsewhere, out = folder / "elsewhere", folder / "run"
    elsewhere.mkdir()
    command = python.with_name("hardstep")
    run(command, "--version", cwd=elsewhere)
    run(command, "train", "snn", "--steps", "20", "--out", out, cwd=elsewhere)
    missing = [name for name in WRITTEN_BY_TRAIN if not (out / name).is_file()]
    if missing:
        stop(f"hardstep train did not write {', '.join(missing)}")


def create_environment(folder: Path, *packages: str) -> Path:
    """Create a virtual environment with these packages; returns its Python."""
    venv.create(folder, with_pip=True)
    python = folder / "bin" / "python"
    run(python, "-m", "pip", "install", "--quiet", "-c", CONSTRAINTS, *packages)
    return python


def run(*command: str | Path, cwd: Path | None = None) -> None:
    """Run a command, shown first, that sees neither this repository nor other versions."""
    print("$", *command, flush=True)
    environment = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "VIRTUAL_ENV")}
    environment["PIP_CONSTRAINT"] = str(CONSTRAINTS)  # also for the environment of `build`
    done = subprocess.run([str(part) for part in command], cwd=cwd, env=environment)
    if done.returncode:
        stop(f"the last command failed with exit code {done.returncode}")


def stop(sentence: str) -> None:
    """Leave with a sentence on stderr and exit code 1."""
    sys.exit(f"release-check: {sentence}")


if __name__ == "__main__":
    main()
