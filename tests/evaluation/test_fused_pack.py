"""Kernels that pack the examples a candidate changes: the losses of those that do not."""

from importlib import import_module

import llvmlite.binding as llvm
import pytest
import torch

from hardstep.evaluation import Incremental
from hardstep.evaluation.fused import bind, emit_vectors, pack
from hardstep.evaluation.fused.compile import run_kernel
from hardstep.evaluation.fused.emit_vectors import can_rearrange
from hardstep.subspaces import RowWise

from .fused_programs import problem
from .test_fused_kernels import losses_of, not_fused

# Layers behind a ReLU, spikes, a quantizer, a gate or a choice.
NAMES = [
    "deep-relu", "recurrence-in-place", "spiking-pair", "quantized", "squeezed", "gated", "routed",
    "keyed", "width-130",
]  # fmt: skip
needs_permutations = pytest.mark.skipif(not can_rearrange(), reason="needs AVX2")


def with_features(monkeypatch, **features):
    monkeypatch.setattr(emit_vectors, "cpu_features", lambda: features)


def evaluated(monkeypatch, given):
    """Losses, and for every kernel whether it packs."""
    packs = {}

    def call(text, *arguments):
        if "%stride" in text:  # not what shortens directions
            packs[text] = "%unit_next" in text
        run_kernel(text, *arguments)

    evaluator = Incremental()
    with monkeypatch.context() as patch:
        patch.setattr(bind, "run_kernel", call)
        losses = losses_of(given, RowWise(2), evaluator)
    assert not_fused(evaluator) == set()
    return losses, list(packs.values())


@needs_permutations
@pytest.mark.parametrize(("number", "name"), list(enumerate(NAMES)))
def test_packing_changes_no_more_than_the_order_of_a_sum(number, name, monkeypatch):
    dtype = (torch.float64, torch.float32)[number % 2]
    given = problem(name, dtype, batch=150)
    packed, packs = evaluated(monkeypatch, given)
    assert any(packs)
    with_features(monkeypatch, avx=True)
    plain, packs = evaluated(monkeypatch, given)
    assert not any(packs)
    precision = 1e-14 if dtype == torch.float64 else 2e-7  # of the sum, or of the result's type
    torch.testing.assert_close(packed, plain, rtol=precision, atol=0)


@pytest.mark.slow
@needs_permutations
@pytest.mark.parametrize("name", ["deep-relu", "spiking-pair", "routed"])
def test_the_candidates_packed_together_do_not_change_a_bit(name, monkeypatch):
    given, found = problem(name, torch.float32, batch=40), []
    for size in (1, 7, 64):
        monkeypatch.setattr(pack, "GROUP", size)
        found.append(evaluated(monkeypatch, given)[0])
    assert all(torch.equal(losses, found[0]) for losses in found)


@needs_permutations
def test_where_every_example_changes_nothing_is_packed(monkeypatch):
    _, packs = evaluated(monkeypatch, problem("deep-relu", torch.float32))
    assert packs == [True, True, True, False]  # the last layer's units are the scores themselves


@pytest.mark.parametrize(
    ("cpu", "features", "instruction"),
    [("haswell", ("avx", "avx2"), "vpermps\t(%r"), ("skylake-avx512", ("avx2", "avx512f"), "%zmm")],
)
def test_registers_are_rearranged_by_the_processors_own_instruction(
    cpu, features, instruction, monkeypatch
):
    """Assembled for either kind of processor, whatever this one is."""
    with_features(monkeypatch, **dict.fromkeys(features, True))
    texts = []
    planning = import_module("hardstep.evaluation.fused.plan")
    monkeypatch.setattr(planning, "compile_kernel", lambda text: None)
    monkeypatch.setattr(bind, "run_kernel", lambda text, *_: texts.append(text))
    with pytest.warns(RuntimeWarning, match="fused evaluation"):  # of kernels that do nothing
        losses_of(problem("deep-relu", torch.float32))
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    target = llvm.Target.from_triple("x86_64-unknown-linux-gnu")
    machine = target.create_target_machine(cpu=cpu, opt=2)
    module = llvm.parse_assembly(texts[0])
    module.verify()
    permutations = [
        line for line in machine.emit_assembly(module).splitlines() if "vpermps" in line
    ]
    assert any(instruction in line for line in permutations)
