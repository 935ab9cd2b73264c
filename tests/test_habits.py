"""What surrounds the code says what is true: versions, paths, commands, hooks."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml

import hardstep

ROOT = Path(__file__).parents[1]
CONTRIBUTING = (ROOT / "CONTRIBUTING.md").read_text()
TARGETS = set(re.findall(r"^([a-z][a-z-]*):", (ROOT / "Makefile").read_text(), re.MULTILINE))
WORKFLOW = yaml.safe_load((ROOT / ".github/workflows/test.yml").read_text())
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def test_the_citation_names_this_version_and_license():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert citation["version"] == hardstep.__version__
    assert citation["license"] == PROJECT["license"]
    assert citation["keywords"] == PROJECT["keywords"]


def test_every_path_in_contributing_exists():
    links = re.findall(r"\]\(([^)#]+)", CONTRIBUTING)
    quoted = re.findall(r"`((?:\.?[\w-]+/)+[\w.-]*|[\w-]+\.(?:md|txt|toml))`", CONTRIBUTING)
    assert len(links) >= 2
    assert len(quoted) >= 8
    assert not [name for name in links + quoted if not (ROOT / name).exists()]


def test_every_command_in_contributing_is_a_target():
    commands = re.findall(r"`make ([\w-]+)", CONTRIBUTING)
    assert {"check", "test", "coverage"} <= set(commands) <= TARGETS


def test_the_workflow_runs_targets_of_the_makefile():
    steps = [step for job in WORKFLOW["jobs"].values() for step in job["steps"]]
    commands = [step["run"].split() for step in steps if "run" in step]
    assert ["make", "test"] in commands
    assert all(len(c) == 2 and c[0] == "make" and c[1] in TARGETS for c in commands)


def test_the_workflow_tries_every_python_that_the_package_names():
    named = [c.rpartition(" ")[2] for c in PROJECT["classifiers"] if "Python :: 3." in c]
    assert WORKFLOW["jobs"]["test"]["strategy"]["matrix"]["python"] == named


def test_pre_commit_accepts_its_configuration():
    done = subprocess.run(
        [sys.executable, "-m", "pre_commit", "validate-config", ".pre-commit-config.yaml"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize(
    "path", sorted((ROOT / ".github/ISSUE_TEMPLATE").glob("*.yml")), ids=lambda p: p.stem
)
def test_an_issue_form_asks_with_distinct_names(path):
    form = yaml.safe_load(path.read_text())
    names = [field["id"] for field in form.get("body", [])]
    assert len(set(names)) == len(names)
    assert names or path.name == "config.yml"
