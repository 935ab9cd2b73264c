"""The package as a whole: its layers, its public names, its README and its Makefile."""

import ast
import os
import re
import subprocess
import sys
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import hardstep

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "hardstep"

# A layer may import from layers before it; names on one line never import each other.
LAYERS = [
    {"errors", "_signals", "_text", "_threads"},
    {
        "_checks",
        "_durations",
        "_files",
        "_linalg",
        "_memory",
        "_pages",
        "_reading",
        "_seals",
        "_torch",
    }
    | {"schedules", "seeds"},
    {"_cache"},
    {"_compiled"},
    {"geometry", "solvers", "subspaces"},
    {"evaluation"},
    {"optim"},
    {"baselines"},
    {"training"},
    {"nn", "data"},
    {"frozen", "rl"},
    {"distributed"},
    {"maxsat", "tasks"},
    {"theory", "bench"},
    {"cli"},
]
RANK = {name: rank for rank, names in enumerate(LAYERS) for name in names}


def modules(path: Path) -> set[str]:
    """The dotted names below `hardstep.` that a file imports: modules, or packages."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "hardstep":
            inside = (node.module or "").removeprefix("hardstep").removeprefix(".")
            for alias in node.names:
                whole = f"{inside}.{alias.name}".removeprefix(".")
                found.add(whole if is_module(whole) else inside)
    return found - {""}


def is_module(name: str) -> bool:
    place = SOURCE / name.replace(".", "/")
    return place.is_dir() or place.with_suffix(".py").is_file()


def test_imports_point_to_lower_layers_only():
    wrong = []
    for path in SOURCE.glob("*/**/*.py"):
        own = path.relative_to(SOURCE).parts[0]
        layers = {name.split(".")[0] for name in modules(path)} - {own}
        wrong += [f"{path.relative_to(SOURCE)} -> {n}" for n in layers if RANK[n] >= RANK[own]]
    assert not wrong


def test_the_map_lists_a_room_below_all_that_it_imports():
    table = (SOURCE / "README.md").read_text().partition("## ")[0]
    lines = re.findall(r"^\| (`.*?) \|", table, re.MULTILINE)
    place = {room: n for n, line in enumerate(lines) for room in re.findall(r"`(\w+)/?`", line)}
    assert set(place) == set(RANK)
    for path in SOURCE.rglob("*.py"):
        own = path.relative_to(SOURCE).parts[0].removesuffix(".py")
        rooms = {room.split(".")[0] for room in modules(path)} - {own}
        wrong = [room for room in rooms if own in place and place[room] >= place[own]]
        assert not wrong, f"{path.relative_to(SOURCE)} imports {wrong}"


PACKAGES = sorted({path.parent for path in SOURCE.rglob("*.py")})


@pytest.mark.parametrize("package", PACKAGES, ids=lambda p: str(p.relative_to(SOURCE)))
def test_the_rooms_of_a_package_form_no_ring(package):
    """Modules and subpackages can be read in an order in which nothing refers forward."""
    name = ".".join(package.relative_to(SOURCE).parts)
    graph: dict[str, set[str]] = {}
    for path in package.rglob("*.py"):
        inside = path.relative_to(package)
        if inside == Path("__init__.py"):
            continue  # the entrance shows what is in all rooms
        own = inside.parts[0].removesuffix(".py")
        for other in modules(path):
            if not name or other.startswith(f"{name}."):
                room = other.removeprefix(f"{name}.").split(".")[0]
                graph.setdefault(own, set()).update({room} - {own})
            assert other != name, f"{path.relative_to(SOURCE)} enters its own package by its door"
    assert list(TopologicalSorter(graph).static_order()) or not graph


def test_every_public_name_exists_and_is_listed_in_order():
    assert sorted(hardstep.__all__) == hardstep.__all__
    for name in hardstep.__all__:
        assert getattr(hardstep, name) is not None
    with pytest.raises(AttributeError, match="nonsense"):
        _ = hardstep.nonsense


def test_the_readme_example_trains_as_written():
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert blocks
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    for block in blocks:
        done = subprocess.run(
            [sys.executable, "-W", "error", "-c", block],
            capture_output=True,
            text=True,
            timeout=120,
            env=environment,
        )
        assert done.returncode == 0, done.stderr


def make(python: Path, tmp_path: Path):
    return subprocess.run(
        ["make", "demo", f"PYTHON={python}", f"VENV={tmp_path / 'venv'}"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
    )


@pytest.mark.parametrize(
    ("fails_on", "sentence"),
    [
        ("ensurepip", "sudo apt install python3-venv"),
        ("version_info", "needs Python 3.11 or newer"),
    ],
)
def test_a_python_that_cannot_make_an_environment_gets_one_sentence(tmp_path, fails_on, sentence):
    python = tmp_path / "python3"
    python.write_text(f'#!/bin/sh\ncase "$*" in *{fails_on}*) exit 1;; esac\nexit 0\n')
    python.chmod(0o755)
    done = make(python, tmp_path)
    assert done.returncode == 2
    said = [line for line in done.stderr.splitlines() if not line.startswith("make")]
    assert len(said) == 1
    assert sentence in said[0]
    assert not (tmp_path / "venv").exists()


def test_no_python_at_all_gets_one_sentence(tmp_path):
    done = make(tmp_path / "none", tmp_path)
    assert done.returncode == 2
    assert "no " in done.stderr
    assert "install it" in done.stderr


def test_the_source_names_no_machine_path():
    for path in [*SOURCE.rglob("*.py"), *ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]:
        assert not re.search(r"/(work|tmp|root)/", path.read_text()), path


def test_only_one_module_names_private_parts_of_torch():
    private = re.compile(r"torch(\.\w+)*\._[a-zA-Z]|\._(cdata|version)\b|_functorch")
    found = [p.name for p in SOURCE.rglob("*.py") if private.search(p.read_text())]
    assert found == ["_torch.py"]


def test_the_command_can_be_run_as_a_module():
    done = subprocess.run(
        [sys.executable, "-m", "hardstep", "--version"], capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stdout.strip()) == (0, hardstep.__version__)
