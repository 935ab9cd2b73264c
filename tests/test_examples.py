"""Examples run, reach what they claim, and stay as short as the documentation says."""

import importlib.util
from pathlib import Path

import torch

from hardstep import Full, Length, PolyStep, Simplex

EXAMPLES = Path(__file__).parents[1] / "examples"


def load(name):
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_maxcut_is_short_and_cuts_most_edges():
    assert len((EXAMPLES / "maxcut.py").read_text().splitlines()) < 60
    assert load("maxcut").main(nodes=150, steps=150) > 0.70


def test_maxcut_losses_are_those_of_a_recount():
    maxcut = load("maxcut")
    upper = (torch.rand(31, 31, generator=torch.Generator().manual_seed(0)) < 0.4).float().triu(1)
    problem = maxcut.MaxCut(upper + upper.T)
    x = torch.linspace(-1, 1, 31)  # an odd number: the last particle is padded
    opt = PolyStep({"x": x}, subspace=Full(), polytope=Simplex(2), probe_radius=Length(9.0))
    candidates = opt.candidates(opt.propose())
    for number, loss in enumerate(problem.losses(candidates).tolist()):
        moved = candidates.parameters(number)["x"]
        assert loss == -float(problem.cut(torch.where(moved >= 0, 1.0, -1.0)))
