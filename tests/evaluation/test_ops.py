"""The registry: every element-wise entry is right in every form, and stands in no other place."""

import ast
import re
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import hardstep.evaluation
from hardstep.evaluation import Problem
from hardstep.evaluation.fused import Unfusable
from hardstep.evaluation.ops import REGISTRY, Operator
from hardstep.evaluation.ops.operator import Registry
from hardstep.evaluation.trace.record import record
from hardstep.nn import build
from hardstep.subspaces import RowWise, trainable

from . import test_fused_functions
from .random_models import Hand
from .test_fused_functions import ACTIVATIONS, CLASSES, HIDDEN, INPUTS, several, total
from .test_incremental import check_losses

RULES = ("column", "examples")  # return nothing where they do not apply; lowerings raise
LOWERINGS = ("lanes", "stack", "events")
# Element-wise operators that no kernel has, as activations like those that kernels have.
OTHERS = {
    "atan": lambda h, x: torch.atan(h),
    "atan2": lambda h, x: torch.atan2(h, x),
    "copysign": lambda h, x: torch.copysign(x, h),
    "cos": lambda h, x: torch.cos(h),
    "cosh": lambda h, x: torch.cosh(0.3 * h),
    "erfc": lambda h, x: torch.erfc(h),
    "floor_divide": lambda h, x: torch.floor_divide(h, 0.3),
    "fmod": lambda h, x: torch.fmod(h, 0.7),
    "isinf": lambda h, x: torch.isinf(1 / h.round()) * x,
    "isnan": lambda h, x: torch.isnan(h.sqrt()) * x,
    "logit": lambda h, x: torch.logit(torch.sigmoid(h)),
    "nan_to_num": lambda h, x: torch.nan_to_num(h.sqrt(), 0.2),
    "sin": lambda h, x: torch.sin(h),
    "sinh": lambda h, x: torch.sinh(0.3 * h),
    "tan": lambda h, x: torch.tan(0.1 * h),
    "xlogy": lambda h, x: torch.xlogy(h, x.abs() + 0.1),
}
EVERY = ACTIVATIONS | OTHERS
ELEMENTWISE = {name for name, one in REGISTRY.items() if one.is_elementwise}


@pytest.fixture
def used(monkeypatch):
    """The (operator, form) whose rule found something, while tiers read the registry."""
    found = set()

    def watch(name, form, rule):
        def watched(*args):
            result = rule(*args)
            if form in LOWERINGS or result is not None:
                found.add((name, form))
            return result

        return rule and watched

    def watch_all(one):
        forms = {form: watch(one.name, form, getattr(one, form)) for form in RULES + LOWERINGS}
        return replace(one, **forms)

    watched = Registry(map(watch_all, REGISTRY.values()))
    for module in ("blocks", "events_tier"):
        monkeypatch.setattr(f"hardstep.evaluation.{module}.REGISTRY", watched)
    return found


def pose(forward, shape, batch=11, **parts):
    """A model with layers, of which the one called `fixed` is no parameter."""

    def make():
        layers = {name: layer() for name, layer in parts.items()}
        fixed = layers.pop("fixed").weight.detach().clone()
        model = Hand(forward, **layers)
        model.register_buffer("fixed", fixed)
        return model

    model = build(make, 0)
    generator = torch.Generator().manual_seed(0)
    inputs = 2 * torch.randn(batch, *shape, generator=generator, dtype=torch.float64)
    return Problem(model.double(), inputs, torch.arange(batch) % CLASSES, F.cross_entropy)


def linear(middle):
    """A column goes through the first of two activations, changed examples through the second."""

    def forward(m, x):
        fixed = x @ m.fixed
        return m.c(middle(m.b(middle(m.a(x), fixed)), fixed))

    parts = {"a": (INPUTS, HIDDEN), "b": (HIDDEN, HIDDEN), "c": (HIDDEN, CLASSES)}
    layers = {name: (lambda sizes=sizes: nn.Linear(*sizes)) for name, sizes in parts.items()}
    return pose(forward, (INPUTS,), fixed=lambda: nn.Linear(HIDDEN, INPUTS), **layers)


def convolutional(middle):
    def forward(m, x):
        hidden = middle(m.a(x), F.conv2d(x, m.fixed))
        return m.c(m.b(hidden).flatten(1))

    return pose(
        forward,
        (2, 5, 5),
        a=lambda: nn.Conv2d(2, HIDDEN, 2),
        fixed=lambda: nn.Conv2d(2, HIDDEN, 2),
        b=lambda: nn.Conv2d(HIDDEN, 3, 3),
        c=lambda: nn.Linear(12, CLASSES),
    )


def recurrent(middle):
    """Three states in a stack, all of which an activation takes at once."""

    def forward(m, x):
        hidden = m.a(x)
        states = torch.stack([hidden, 0.5 * hidden, x @ m.fixed], dim=1)
        fixed = torch.stack([x @ m.fixed, -x @ m.fixed, x @ m.fixed], dim=1)
        return m.c(middle(states, fixed).mean(dim=1))

    return pose(
        forward,
        (INPUTS,),
        a=lambda: nn.Linear(INPUTS, HIDDEN),
        fixed=lambda: nn.Linear(HIDDEN, INPUTS),
        c=lambda: nn.Linear(HIDDEN, CLASSES),
    )


def check(problem, names, forms, used):
    """Losses are those of plain passes, and every operator was followed in these forms."""
    evaluator, _ = check_losses(problem, names, RowWise(2), torch.float64)
    missing = {(name, form) for name in names for form in forms} - used
    assert not missing, evaluator.notes
    return evaluator


def test_every_elementwise_entry_is_tried_and_recorded_under_its_name():
    assert set(EVERY) == ELEMENTWISE
    for name, middle in OTHERS.items():  # those of kernels: test_fused_functions.py
        problem = linear(middle)
        with torch.no_grad():
            written = record(problem, trainable(problem.model), 0)
        assert name in {node.name for node in written.nodes}, name


@several(EVERY, 12)
def test_columns_and_examples_pass_through_elementwise_operators(names, used, monkeypatch):
    def refuse(*arguments):
        raise Unfusable("not asked for")

    monkeypatch.setattr("hardstep.evaluation.blocks.plan_kernel", refuse)
    evaluator = check(linear(total(EVERY, names)), names, RULES, used)
    assert set(evaluator.notes.values()) == {"incremental"}


@several(ACTIVATIONS, 8)
def test_events_pass_through_elementwise_operators(names, used, monkeypatch):
    monkeypatch.setattr("hardstep.evaluation.blocks.count_work", lambda *_: float("inf"))
    evaluator = check(convolutional(total(ACTIVATIONS, names)), names, ("events",), used)
    assert evaluator.notes["a.weight", "a.bias"] == "events"


# A stack meets stacks and single numbers only.
OF_STACKS = ACTIVATIONS | {
    "_prelu_kernel": lambda h, x: F.prelu(h, torch.full((1,), 0.2, dtype=h.dtype)),
}


@several(OF_STACKS, 8)
def test_stacks_pass_through_elementwise_operators(names, used):
    evaluator = check(recurrent(total(OF_STACKS, names)), names, ("stack",), used)
    assert set(evaluator.notes.values()) == {"fused"}


# -- one place ---------------------------------------------------------------------------------


def test_an_operator_has_one_entry():
    with pytest.raises(ValueError, match="relu has two entries"):
        Registry([Operator("relu"), Operator("relu")])


def test_every_entry_is_an_operator_of_torch():
    assert [name for name in REGISTRY if not hasattr(torch.ops.aten, name)] == []


def test_an_operator_without_an_entry_is_known_for_nothing():
    assert REGISTRY["fft_fft"] == Operator("fft_fft")
    assert "fft_fft" not in REGISTRY


def find_named(source: str) -> list[str]:
    """Operators that code knows by name: keys and members of tables, and what it compares with."""
    found = []
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Dict():
                named = node.keys
            case ast.Set() | ast.List() | ast.Tuple():
                named = node.elts
            case ast.Compare(left=ast.Attribute(attr="name")):
                named = node.comparators
            case ast.Call(func=ast.Attribute(value=ast.Constant(value=str(text)), attr="split")):
                named = map(ast.Constant, text.split())
            case _:
                continue
        found += [one.value for one in named if isinstance(one, ast.Constant)]
    return [name for name in found if name in REGISTRY]


def test_tables_and_comparisons_are_found():
    assert find_named('RULES = {"gelu": build, "other": 1}') == ["gelu"]
    assert find_named('NAMES = "view permute".split()') == ["view", "permute"]
    assert find_named('node.name in ("mm", "addmm")') == ["mm", "addmm"]
    assert find_named('node.name == "convolution"') == ["convolution"]


def test_no_other_module_knows_operators_by_name():
    folder = Path(hardstep.evaluation.__file__).parent
    others = [path for path in folder.rglob("*.py") if path.parent.name != "ops"]
    found = {path.name: named for path in others if (named := find_named(path.read_text()))}
    assert found == {}


def test_the_worked_example_of_the_readme_is_the_code():
    folder = Path(hardstep.evaluation.__file__).parent
    page = (folder / "README.md").read_text()
    block, line = r"```python\n(.*?)```", r"`([^`\n]*(?:elementwise|F\.gelu)\([^`\n]*)`"
    shown = re.findall(f"{block}|{line}", page, re.DOTALL)
    files = folder / "ops" / "activations.py", Path(test_fused_functions.__file__)
    code = "".join(path.read_text() for path in files)
    pieces = [block or line for block, line in shown]
    assert len(pieces) == 3
    assert [piece for piece in pieces if piece not in code] == []
