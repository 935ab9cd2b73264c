"""Compiled programs: the losses of plain forward passes, for any batch, threads and cache."""

from itertools import product
from pathlib import Path
from threading import get_ident
from time import sleep

import pytest
import torch
import torch.nn.functional as F

from hardstep import PolyStep
from hardstep.evaluation import Incremental, ModelObjective, Problem
from hardstep.evaluation import blocks as evaluating
from hardstep.evaluation.fused import bind, emit_products, emit_vectors
from hardstep.evaluation.fused import compile as compiling
from hardstep.evaluation.trace.record import record
from hardstep.nn import build
from hardstep.subspaces import Full, LayerWise, RowWise, trainable

from .catalogue import candidates_for, hand_losses
from .fused_programs import CLASSES, INPUTS, PROGRAMS, linear, problem
from .random_models import Hand
from .test_incremental import check_losses, compare

SUBSPACES = {"rows": RowWise(2), "full": Full(), "layers": LayerWise(1)}
# Either precision with every form of candidate, over the programs.
DTYPES = {"rows": torch.float64, "full": torch.float64, "layers": torch.float32}
TRIED = [
    (name, kind)
    for name, case in PROGRAMS.items()
    for kind in SUBSPACES
    if getattr(case, kind) is not None
]


def losses_of(given, subspace=None, evaluator=None, **settings):
    candidates = candidates_for(given.model, subspace or RowWise(2), dim=3, scale=0.7, **settings)
    return ModelObjective(given, evaluator or Incremental()).losses(candidates)


def posed(model, batch=7):
    """Drawn examples for a model made by hand."""
    inputs = torch.randn(batch, INPUTS, generator=torch.Generator().manual_seed(0)).double()
    return Problem(model, inputs, torch.arange(batch) % CLASSES, F.cross_entropy)


def not_fused(evaluator):
    return {names[0] for names, note in evaluator.notes.items() if note != "fused"}


@pytest.mark.parametrize(("name", "kind"), TRIED)
def test_programs_are_compiled_and_exact(name, kind):
    dtype = DTYPES[kind]
    evaluator, _ = check_losses(problem(name, dtype), name, SUBSPACES[kind], dtype)
    assert not_fused(evaluator) == set(getattr(PROGRAMS[name], kind))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "kind", "batch"),
    [
        *product(["deep-relu", "keyed", "squeezed"], ["rows"], [1, 6, 9, 16, 33]),
        *product(["deep-relu"], ["layers"], [1, 3, 17, 33]),  # dense directions
    ],
)
def test_any_number_of_examples(name, kind, batch):
    """Examples that fill no vector, or several; as many as a layer has units, or classes."""
    given = problem(name, DTYPES[kind], batch=batch)
    evaluator, _ = check_losses(given, name, SUBSPACES[kind], DTYPES[kind])
    assert not_fused(evaluator) == set()


@pytest.mark.parametrize("name", ["spiking-pair", "normalized", "experts", "looked-up"])
def test_kernels_switched_off_give_the_same_losses(name):
    given, plain = problem(name), Incremental(fused=False)
    followed = losses_of(given, evaluator=plain)
    assert "fused" not in plain.notes.values()
    torch.testing.assert_close(losses_of(given), followed, rtol=1e-10, atol=1e-12)


# -- the same bits ---------------------------------------------------------------------------


def with_threads(given, subspace):
    """Losses with one thread and with three."""
    before, losses = torch.get_num_threads(), []
    try:
        for threads in (1, 3):
            torch.set_num_threads(threads)
            losses.append(losses_of(given, subspace))
    finally:
        torch.set_num_threads(before)
    return losses


@pytest.mark.parametrize(
    ("name", "kind"),
    [("spiking-pair", "rows"), ("keyed", "rows"), ("deep-relu", "layers"), ("normalized", "full")],
)
def test_the_number_of_threads_does_not_change_a_bit(name, kind):
    one, three = with_threads(problem(name, torch.float32, batch=40), SUBSPACES[kind])
    assert torch.equal(one, three)


@pytest.mark.parametrize(
    ("name", "kind"), [("spiking-pair", "rows"), ("deep-relu", "layers"), ("normalized", "full")]
)
def test_tiles_shared_among_threads_are_exact(name, kind, monkeypatch):
    monkeypatch.setattr(bind, "MIN_TILE", 1)
    sums, threads = bind.Kernel.sums, []

    def watched(*given):
        threads.append(get_ident())
        sleep(0.002)  # the others come to theirs, on a busy machine, too
        return sums(*given)

    monkeypatch.setattr(bind.Kernel, "sums", watched)
    one, three = with_threads(problem(name, torch.float32, batch=40), SUBSPACES[kind])
    assert torch.equal(one, three)
    assert set(threads) - {get_ident()}  # others had whole tiles
    check_losses(problem(name, DTYPES[kind]), name, SUBSPACES[kind], DTYPES[kind])


@pytest.mark.parametrize("kind", ["rows", "layers"])
def test_the_number_of_threads_changes_no_more_than_torch_does(kind):
    """Products of larger matrices are torch's, which rounds them as its threads share them."""
    one, three = with_threads(problem("width-130", torch.float32, batch=200), SUBSPACES[kind])
    torch.testing.assert_close(one, three, rtol=1e-6, atol=0)


@pytest.mark.parametrize(("name", "kind"), [("deep-relu", "rows"), ("width-37", "layers")])
def test_the_number_of_registers_does_not_change_a_bit(name, kind, monkeypatch):
    """Products of 3 and 6, and of 37 outputs, in strips of equal width or not."""
    given, found = problem(name, torch.float32), {}
    for width in (1, 5, 12):
        monkeypatch.setattr(emit_products, "sums_in_registers", lambda width=width: width)
        evaluator = Incremental()
        found[width] = losses_of(given, SUBSPACES[kind], evaluator)
        assert not_fused(evaluator) == set()
    assert all(torch.equal(losses, found[1]) for losses in found.values())


@pytest.mark.parametrize(
    ("features", "width"),
    [(("avx", "avx512f"), 12), (("avx", "avx2"), 6), (("sse2",), 2), (("neon",), 6)],
)
def test_sums_change_and_weight_fit_the_registers(features, width, monkeypatch):
    monkeypatch.setattr(emit_vectors, "cpu_features", lambda: dict.fromkeys(features, True))
    assert emit_vectors.sums_in_registers() == width


@pytest.mark.parametrize(
    ("name", "kind", "batch"),
    [("quantized", "rows", 40), ("keyed", "rows", 40), ("normalized", "full", 40),
     ("width-130", "rows", 200), ("width-130", "layers", 200)],
)  # fmt: skip
def test_the_memory_budget_does_not_change_a_bit(name, kind, batch):
    given = problem(name, torch.float32, batch=batch)
    with torch.no_grad():
        least = record(given, trainable(given.model), 0).nbytes
    losses = []
    for budget in (least, 2 * least, 1 << 30):
        evaluator = Incremental(memory_budget=budget)
        losses.append(losses_of(given, SUBSPACES[kind], evaluator))
        assert not_fused(evaluator) == set()
    assert torch.equal(losses[0], losses[1])
    assert torch.equal(losses[0], losses[2])


def test_probes_that_change_no_binary_weight_get_the_base_loss_to_the_bit():
    """Every threshold lies where the base stands; a sum in another order would cross some."""

    def products(self, x):
        return x @ torch.where(self.fc.weight >= 0, 1.0, -1.0).to(x.dtype).T

    def signs(self, x):
        return self.out(torch.sign(products(self, x) - self.thresholds))

    def make():
        return Hand(signs, fc=linear(16, 24, bias=False), out=linear(CLASSES, 16))

    model = build(make, 0).double()
    inputs = torch.randn(7, 24, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    model.thresholds = products(model, inputs).detach()
    given = Problem(model, inputs, torch.arange(7) % CLASSES, F.cross_entropy)
    with torch.no_grad():
        base = given.loss(trainable(model), given.buffers())
    candidates = candidates_for(model, RowWise(2), dim=3, scale=1e-9)
    evaluator = Incremental()
    found = ModelObjective(given, evaluator).losses(candidates)
    binary = next(span for span in candidates.spans() if span.block == 0)
    assert evaluator.notes["fc.weight",] == "fused"
    assert torch.equal(found[: binary.end], base.expand(binary.end))


# -- compiling -------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A cache of its own, and nothing compiled yet."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    compiling.compile_kernel.cache_clear()
    return tmp_path


def counted(monkeypatch, place, name):
    """The arguments of every call of a function from now on."""
    made, function = [], getattr(place, name)
    monkeypatch.setattr(place, name, lambda *args: made.append(args) or function(*args))
    return made


@pytest.fixture
def optimized(monkeypatch):
    """What LLVM optimizes: an entry for each kernel."""
    return counted(monkeypatch, compiling.llvm, "create_pass_builder")


KERNELS = 3  # of a small network: one per layer, and one that looks which inputs vary


def kept(folder):
    return sorted(path for path in folder.rglob("*") if path.is_file())


def test_kernels_are_kept_on_disk_and_found_again(folder, optimized):
    given = problem("squeezed")
    first = losses_of(given)
    assert len(kept(folder)) == len(optimized) == KERNELS
    compiling.compile_kernel.cache_clear()  # as another process would start
    assert torch.equal(losses_of(given), first)
    assert len(kept(folder)) == len(optimized) == KERNELS


@pytest.mark.parametrize(
    "damage",
    [
        lambda code: b"",
        lambda code: code[:-1],
        lambda code: code[:-99] + bytes([code[-99] ^ 1]) + code[-98:],
        lambda code: bytes(len(code)),
    ],
    ids=["empty", "one-less", "a-bit", "zeros"],
)
def test_a_damaged_kernel_is_compiled_again(folder, optimized, damage):
    given = problem("squeezed")
    first = losses_of(given)
    code = {path: path.read_bytes() for path in kept(folder)}
    for path in code:
        path.write_bytes(damage(code[path]))
    compiling.compile_kernel.cache_clear()
    assert torch.equal(losses_of(given), first)
    assert len(optimized) == 2 * len(code)
    assert {path: path.read_bytes() for path in kept(folder)} == code


def test_one_kernel_under_the_name_of_another_is_compiled_again(folder, optimized):
    given = problem("squeezed")
    first = losses_of(given)
    one, *others = kept(folder)
    for path in others:
        path.write_bytes(one.read_bytes())
    compiling.compile_kernel.cache_clear()
    assert torch.equal(losses_of(given), first)
    assert len(optimized) == KERNELS + len(others)


def test_a_kernel_that_another_could_have_written_is_compiled_again(folder, optimized):
    given = problem("squeezed")
    first = losses_of(given)
    for path in kept(folder):
        path.chmod(0o666)
    compiling.compile_kernel.cache_clear()
    assert torch.equal(losses_of(given), first)
    assert len(optimized) == 2 * KERNELS


def test_a_folder_that_cannot_be_used_costs_nothing(folder, monkeypatch):
    given = problem("squeezed")
    first = losses_of(given)
    blocked = folder / "a file"
    blocked.write_text("")
    occupied = folder / "occupied"
    for path in kept(folder / "hardstep"):  # a folder stands where the kernel should
        (occupied / path.relative_to(folder)).mkdir(parents=True)
    for place in (blocked, blocked / "below", occupied, "/proc/no/such/place"):
        monkeypatch.setenv("XDG_CACHE_HOME", str(place))
        compiling.compile_kernel.cache_clear()
        assert torch.equal(losses_of(given), first)
    assert blocked.read_text() == ""


def test_a_user_without_a_home_has_no_cache(folder, monkeypatch):
    def lost():
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setattr(Path, "home", lost)
    evaluator = Incremental()
    losses_of(problem("squeezed"), evaluator=evaluator)
    assert not_fused(evaluator) == set()


def test_a_second_step_plans_and_compiles_nothing(monkeypatch):
    given = problem("spiking-pair")
    planned = counted(monkeypatch, evaluating, "plan_kernel")
    compiled = counted(monkeypatch, compiling.llvm, "parse_assembly")
    compiling.compile_kernel.cache_clear()
    opt = PolyStep(given.model, subspace=RowWise(2))
    batch = (given.inputs, given.target, given.loss_fn)
    for _ in range(3):
        opt.step(*batch)
        assert (len(planned), len(compiled)) == (2, KERNELS)
    # The last batch of an epoch is smaller: planned for its shape, with the kernels there are.
    partial = problem("spiking-pair", batch=7)
    for smaller in (True, False, True):
        opt.step(*((partial.inputs, partial.target, partial.loss_fn) if smaller else batch))
        assert (len(planned), len(compiled)) == (4, KERNELS)


# -- numbers that are not finite -------------------------------------------------------------


def same_pattern(given, subspace):
    """Not a number where plain passes have it, infinite where they are, else the same."""
    _, found, wrong, evaluator = compare(given, subspace, torch.float64)
    assert not wrong
    return found, evaluator


@pytest.mark.slow
@pytest.mark.parametrize("place", ["input", "first weight", "last weight"])
@pytest.mark.parametrize(
    ("name", "bad"), [("deep-relu", torch.inf), ("recurrence", torch.inf), ("keyed", torch.nan)]
)
def test_numbers_that_are_not_finite_spread_as_in_plain_passes(name, place, bad):
    given = problem(name)
    weights = [tensor for tensor in given.model.parameters() if tensor.dim() == 2]
    with torch.no_grad():
        target = {
            "input": given.inputs[2],
            "first weight": weights[0][1],
            "last weight": weights[-1][1],
        }[place]
        target[1] = bad
    for subspace in (RowWise(2), LayerWise(1)):
        same_pattern(given, subspace)


def test_a_candidate_may_be_finite_where_the_current_weights_are_not():
    """An overflow that a probe undoes: infinity plus a difference would never come back."""

    def overflows(self, x):
        return self.out(torch.exp(self.fc(x)))

    model = build(lambda: Hand(overflows, fc=linear(3), out=linear(CLASSES, 3)), 0).double()
    with torch.no_grad():
        model.fc.weight.mul_(0.1)
        model.fc.bias.copy_(torch.tensor([710.0, 0.0, 0.0]))
        model.out.weight[:, 0] = torch.tensor([1e-300, 2e-300, -1e-300])
    given = posed(model, batch=5)
    given.inputs.mul_(0.1)
    candidates = candidates_for(model, RowWise(2), dim=3, vertices=6, scale=3.0)
    evaluator = Incremental()
    found = ModelObjective(given, evaluator).losses(candidates)
    assert 0 < int(found.isfinite().sum()) < len(found)
    torch.testing.assert_close(
        found, hand_losses(candidates, given), rtol=1e-10, atol=0, equal_nan=True
    )
    assert "not finite" in evaluator.note


def test_an_infinite_loss_of_one_example_may_become_finite():
    def log_of_a_share(o, t):
        return -torch.softmax(o, dim=1).gather(1, t[:, None]).log().mean()

    given = problem("deep-relu")
    with torch.no_grad():
        given.model.out.bias.copy_(torch.tensor([746.0, 0.0, 0.0]))
    given = Problem(given.model, given.inputs, torch.ones_like(given.target), log_of_a_share)
    found, _ = same_pattern(given, RowWise(2))
    assert 0 < int(found.isfinite().sum()) < len(found)


# -- plans that outlive the step they were made for ------------------------------------------


def test_a_plan_is_not_used_for_constants_of_another_form():
    def masked(self, x):
        return self.out(torch.relu(self.fc(x)) * self.mask)

    model = build(lambda: Hand(masked, fc=linear(9), out=linear(CLASSES, 9)), 0).double()
    given, evaluator = posed(model), Incremental()
    wide = torch.linspace(-1, 1, 63, dtype=torch.float64).reshape(7, 9)
    for mask in (wide, wide[:, :1], wide[0], wide > 0, wide.float(), wide[:1], wide[1, 1]):
        model.mask = mask.clone()
        found = losses_of(given, evaluator=evaluator)
        candidates = candidates_for(model, RowWise(2), dim=3, scale=0.7)
        torch.testing.assert_close(found, hand_losses(candidates, given), rtol=1e-10, atol=1e-12)


def test_one_evaluator_serves_several_subspaces():
    given, evaluator = problem("deep-relu"), Incremental()
    for kind in ("rows", "full", "layers", "full", "rows"):
        found = losses_of(given, SUBSPACES[kind], evaluator)
        torch.testing.assert_close(found, losses_of(given, SUBSPACES[kind]), rtol=1e-10, atol=1e-12)


def test_a_plan_is_not_used_where_an_index_begins_to_vary_within_rows():
    def picks(self, x):
        parts = torch.stack([self.fc(x), self.other(x)], dim=1)
        return self.out(torch.gather(parts, 1, self.index).squeeze(1))

    def make():
        model = Hand(picks, fc=linear(9), other=linear(9), out=linear(CLASSES, 9))
        model.register_buffer("index", torch.zeros(7, 1, 9, dtype=torch.int64))
        return model

    model, evaluator = build(make, 0).double(), Incremental()
    given = posed(model)
    candidates = candidates_for(model, RowWise(2), dim=3, scale=0.7)
    paths = []
    for step in range(3):
        if step == 1:
            model.index[:, :, ::2] = 1
        found = ModelObjective(given, evaluator).losses(candidates)
        torch.testing.assert_close(found, hand_losses(candidates, given), rtol=1e-10, atol=1e-12)
        paths.append(evaluator.notes["fc.weight", "fc.bias"])
    assert paths == ["fused", "incremental", "incremental"]
