"""Target: a user's file with a task, which may raise anything anywhere."""

from pathlib import Path
from random import Random

from hypothesis import strategies as st

from tests.fuzz.answers import ask, close, judge
from tests.fuzz.damage import TEXTS, damage
from tests.fuzz.target import Case, Target

FILE = Path("own.py")
PLACES = ("module", "task", "data", "model", "forward", "loss", "metric", "settings")
SAMPLE = '''"""A task."""
import os, sys, time
import torch
from torch import nn
from hardstep.data import from_tensors
from hardstep.optim.presets import general
from hardstep.tasks import Task
from hardstep.training import Metric

def fault(place):
    if place == {place!r}:
        return {fault}

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 3)
        self.odd = fault("model")
    def forward(self, x):
        return fault("forward") or self.fc(x)

def data(seed):
    x = torch.linspace(-1, 1, 120).reshape(30, 4)
    return fault("data") or from_tensors(x, torch.arange(30) % 3, seed, name="small")

def loss(output, target):
    return fault("loss") or nn.functional.cross_entropy(output, target)

def score(output, target):
    return fault("metric") or (output.argmax(1) == target).double().mean()

def settings(steps):
    return fault("settings") or general(steps)

def small():
    metric = Metric("accuracy", score, higher_is_better=True, percent=True)
    return fault("task") or Task("small", "a small one", data, Net, settings, 3, 8, loss, metric)

fault("module")
'''
RAISED = (
    *("ValueError", "KeyError", "BaseException", "SystemExit", "KeyboardInterrupt"),
    *("GeneratorExit", "RecursionError", "MemoryError", "StopIteration", "UnicodeError"),
    *("StopAsyncIteration", "Warning", "OSError", "SyntaxError", "AssertionError"),
)
DONE = (
    *("os.unlink(__file__)", "sys.exit(3)", "sys.exit('text')", "1 / 0"),
    *("torch.zeros(3)", "torch.tensor(1 + 2j)", "torch.tensor(float('nan'))", "'text'", "10**400"),
    *("[]", "nn.Linear(4, 2)", "type('Odd', (), {{}})()", "fault(place)"),
    *("type('Mute', (Exception,), {{'__str__': lambda s: 1 / 0}})()", "float('inf')", "True"),
    *("(_ for _ in ()).throw(type('Mute', (Exception,), {{'__str__': lambda s: 1 / 0}})())",),
)


def _raise(name: str, text: str) -> str:
    return f"(_ for _ in ()).throw({name}({text!r}))"


def _write(place: str, fault: str) -> bytes:
    return SAMPLE.format(place=place, fault=fault).encode("utf-8", "backslashreplace")


class TaskFile(Target):
    """`hardstep train own.py:small`, up to its first step."""

    name, share = "task", 1.0
    strategy = st.builds(
        _write,
        st.sampled_from(PLACES),
        st.builds(_raise, st.sampled_from(RAISED), st.sampled_from(TEXTS) | st.text())
        | st.sampled_from(DONE).map(lambda text: text.format()),
    )

    def open(self) -> None:
        """No run begins."""
        close("train.fit")

    def vary(self, rng: Random) -> Case:
        """Changed as text."""
        sample = _write("nowhere", "None")
        return Case(damage(sample, rng, [sample]))

    def read(self, case: Case) -> str:
        """As the command does."""
        FILE.write_bytes(case.content)
        try:
            answer = ask("train", f"{FILE}:small", "--out", "run", "--steps", "3")
        finally:
            FILE.unlink(missing_ok=True)
        return judge(answer, case.content.decode("latin-1"), own_code=True)
