"""Recurrent layers and loops: kernels follow them, and their losses are those of plain passes."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence

from hardstep import PolyStep
from hardstep.evaluation import Incremental, ModelObjective, Problem
from hardstep.evaluation.fused import emit, emit_draft, plan
from hardstep.evaluation.trace.overlap import are_apart
from hardstep.evaluation.trace.recurrence import CELLS, unroll
from hardstep.nn import build
from hardstep.subspaces import RowWise

from .catalogue import candidates_for
from .random_models import Hand
from .random_recurrences import FEATURES, draw_recurrence
from .test_incremental import check_losses

FUNCTIONS = {nn.LSTM: torch.lstm, nn.GRU: torch.gru, nn.RNN: torch.rnn_tanh}
LAYERS = {
    "lstm": lambda: nn.LSTM(FEATURES, 4),
    "gru, both ways, two layers, dropout": lambda: nn.GRU(
        FEATURES, 4, 2, dropout=0.5, bidirectional=True
    ),
    "rnn, batch first, no bias": lambda: nn.RNN(FEATURES, 4, 2, bias=False, batch_first=True),
    "lstm, projected, both ways": lambda: nn.LSTM(FEATURES, 4, 2, proj_size=2, bidirectional=True),
}


@pytest.mark.parametrize("name", LAYERS)
def test_time_steps_compute_what_the_layer_does(name):
    layer = build(LAYERS[name], 0).double()
    x = torch.randn(5, 6, FEATURES, dtype=torch.float64)
    num, batch = layer.num_layers * (1 + layer.bidirectional), 5 if layer.batch_first else 6
    state = torch.randn(num, batch, layer.proj_size or 4, dtype=torch.float64)
    if isinstance(layer, nn.LSTM):
        state = (state, torch.randn(num, batch, 4, dtype=torch.float64))
    weights = [parameter.detach() for parameter in layer.parameters()]
    settings = (layer.bias, layer.num_layers, layer.dropout, True, layer.bidirectional)
    arguments = (x, state, weights, *settings, layer.batch_first)
    function = FUNCTIONS[type(layer)]
    torch.manual_seed(0)
    expected = function(*arguments)
    torch.manual_seed(0)  # so that dropout leaves out the same
    for one, other in zip(expected, unroll(CELLS[function], *arguments), strict=True):
        torch.testing.assert_close(other, one, rtol=1e-12, atol=1e-12)


# -- losses ----------------------------------------------------------------------------------


def classifier(layer, read, width=4):
    return Hand(lambda m, x: m.out(read(m.layer(x))), layer=layer(), out=nn.Linear(width, 3))


def last(found):
    return found[0][:, -1]


def loop(cell):
    """A loop over a cell."""

    def forward(m, x):
        state = torch.zeros(len(x), 4, dtype=x.dtype)
        state = (state, state) if isinstance(m.cell, nn.LSTMCell) else state
        for step in x.unbind(1):
            state = m.cell(step, state)
        return m.out(state[0] if isinstance(state, tuple) else state)

    return Hand(forward, cell=cell(FEATURES, 4), out=nn.Linear(4, 3))


def joined(m, x):
    """Inputs and state meet one weight; the gates are hard."""
    hidden = torch.zeros(len(x), 4, dtype=x.dtype)
    for step in x.unbind(1):
        gate, new = m.gates(torch.cat([step, hidden], 1)).chunk(2, 1)
        hidden = torch.where(gate > 0, torch.tanh(new), hidden)
    return m.out(hidden)


def before(m, x):
    """Two layers see all time steps at once, with time first in between; then the loop."""
    drive = m.second(torch.tanh(m.first(x))).transpose(0, 1)
    hidden = torch.zeros(len(x), 4, dtype=x.dtype)
    for step in drive:
        hidden = torch.tanh(step + m.again(hidden))
    return m.out(hidden)


def carried(m, x):
    """The state of one half is where the other one begins."""
    _, state = m.layer(x[:, :2])
    outputs, _ = m.layer(x[:, 2:], state)
    return m.out(outputs.mean(1))


MODELS = {
    "lstm": lambda: classifier(lambda: nn.LSTM(FEATURES, 4, batch_first=True), last),
    "gru": lambda: classifier(
        lambda: nn.GRU(FEATURES, 4, batch_first=True), lambda f: f[0].amax(1)
    ),
    "relu": lambda: classifier(
        lambda: nn.RNN(FEATURES, 4, nonlinearity="relu", batch_first=True), last
    ),
    "time first": lambda: Hand(
        lambda m, x: m.out(m.layer(x.transpose(0, 1))[1][0][-1]),
        layer=nn.LSTM(FEATURES, 4), out=nn.Linear(4, 3),
    ),
    "two layers, both ways, dropout": lambda: classifier(
        lambda: nn.GRU(FEATURES, 3, 2, dropout=0.5, bidirectional=True, batch_first=True),
        last, 6,
    ),
    "projected": lambda: classifier(
        lambda: nn.LSTM(FEATURES, 4, proj_size=2, batch_first=True), last, 2
    ),
    "carried": lambda: Hand(
        carried, layer=nn.LSTM(FEATURES, 4, batch_first=True), out=nn.Linear(4, 3)
    ),
    "lstm cell": lambda: loop(nn.LSTMCell),
    "gru cell": lambda: loop(nn.GRUCell),
    "before": lambda: Hand(
        before, first=nn.Linear(FEATURES, 5), second=nn.Linear(5, 4), again=nn.Linear(4, 4),
        out=nn.Linear(4, 3),
    ),
    "joined": lambda: Hand(joined, gates=nn.Linear(FEATURES + 4, 8), out=nn.Linear(4, 3)),
}  # fmt: skip


def problem_of(name, dtype, batch=6, steps=4):
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(batch, steps, FEATURES, generator=generator, dtype=dtype)
    target = torch.randint(0, 3, (batch,), generator=generator)
    return Problem(build(MODELS[name], 0).to(dtype), inputs, target, F.cross_entropy)


@pytest.mark.parametrize("name", MODELS)
def test_recurrences_are_compiled_and_exact(name):
    problem = problem_of(name, torch.float64, steps=2 if "layers" in name else 3)
    evaluator, _ = check_losses(problem, name, RowWise(2), torch.float64)
    assert set(evaluator.notes.values()) == {"fused"}


@pytest.mark.parametrize("batch", [1, 3])
def test_as_many_examples_as_time_steps_are_not_confused(batch):
    problem = problem_of("before", torch.float64, batch, steps=3)
    evaluator, _ = check_losses(problem, "before", RowWise(2), torch.float64)
    assert set(evaluator.notes.values()) == {"fused"}


@pytest.mark.parametrize(("batch", "steps"), [(1, 4), (6, 1)])
def test_one_example_and_one_time_step(batch, steps):
    problem = problem_of("lstm", torch.float32, batch, steps)
    evaluator, _ = check_losses(problem, "lstm", RowWise(2), torch.float32)
    assert set(evaluator.notes.values()) == {"fused"}


@pytest.mark.slow
@pytest.mark.parametrize("seed", [*range(8), 14])
def test_random_recurrences_get_the_losses_of_plain_forward_passes(seed):
    problem, names = draw_recurrence(seed)
    evaluator, _ = check_losses(problem, names, RowWise(2), torch.float64)
    assert set(evaluator.notes.values()) <= {"fused", "incremental"}


class FirstState(nn.Module):
    """A recurrence that begins with parameters."""

    def __init__(self, kind, shape):
        super().__init__()
        two = kind in ("layers", "added")
        self.layer = nn.GRU(FEATURES, 4, 1 + two, batch_first=True, bidirectional=two)
        self.cell, self.kind = nn.LSTMCell(FEATURES, 4), kind
        self.start, self.out = nn.Parameter(torch.randn(shape)), nn.Linear(4 + 4 * two, 3)

    def forward(self, x):
        if self.kind.startswith("cell"):
            state = (self.start.expand(len(x), -1), x.new_ones(len(x), 4))
            if self.kind == "cell, added":
                state = (x[:, 0, :1] + self.start, state[1])
            for step in x.unbind(1):
                state = self.cell(step, state)
            return self.out(state[0])
        if self.kind == "repeated":
            start = self.start.repeat(1, len(x), 1)
        elif self.kind == "added":
            start = self.start + x.new_zeros(len(self.start), len(x), 4)
        elif self.kind == "computed":
            start = 2 * torch.tanh(self.start) * (x.new_ones(4) + x[None, :, 0, :1])
        else:
            rows = self.start.unsqueeze(1) if self.start.dim() == 2 else self.start
            start = rows.expand(-1 if rows.dim() == 3 else 1, len(x), -1).contiguous()
        return self.out(self.layer(x, start)[0][:, -1])


STATES = [
    ("layer", (1, 1, 4)), ("layer", (1, 4)), ("layer", (4,)), ("layers", (4, 1, 4)),
    ("layers", (4, 4)), ("repeated", (1, 1, 4)), ("cell", (1, 4)), ("cell", (4,)),
]  # fmt: skip


@pytest.mark.parametrize("batch", [1, 6])
@pytest.mark.parametrize(("kind", "shape"), STATES)
def test_learned_first_states_are_fused(kind, shape, batch):
    model = build(lambda: FirstState(kind, shape), 0).double()
    x = torch.randn(batch, 5, FEATURES, dtype=torch.float64)
    problem = Problem(model, x, torch.arange(batch) % 3, F.cross_entropy)
    evaluator, _ = check_losses(problem, kind, RowWise(2), torch.float64)
    assert evaluator.notes[("start",)] == "fused"


COMPUTED = [("added", (4, 1, 4)), ("computed", (1, 1, 4)), ("cell, added", (1, 4))]


@pytest.mark.parametrize(("kind", "shape"), COMPUTED)
def test_first_states_that_are_computed_are_fused(kind, shape):
    model = build(lambda: FirstState(kind, shape), 0).double()
    x = torch.randn(6, 5, FEATURES, dtype=torch.float64)
    problem = Problem(model, x, torch.arange(6) % 3, F.cross_entropy)
    evaluator, _ = check_losses(problem, kind, RowWise(2), torch.float64)
    assert evaluator.notes[("start",)] == "fused"


def test_losses_are_the_same_bits_at_any_budget_and_number_of_threads():
    problem = problem_of("lstm", torch.float32)
    candidates = candidates_for(problem.model, RowWise(2), dim=3, scale=0.7)

    def losses(budget, threads):
        before = torch.get_num_threads()
        torch.set_num_threads(threads)
        try:
            evaluator = Incremental(memory_budget=budget)
            return ModelObjective(problem, evaluator).losses(candidates)
        finally:
            torch.set_num_threads(before)

    assert torch.equal(losses(1 << 30, 1), losses(1 << 30, 2))
    assert torch.equal(losses(1 << 30, 1), losses(1 << 16, 1))


@pytest.mark.parametrize("name", ["lstm", "gru", "joined"])
def test_loops_that_are_functions_give_the_same_bits(name, monkeypatch):
    problem = problem_of(name, torch.float32, steps=3)
    candidates = candidates_for(problem.model, RowWise(2), dim=3, scale=0.7)
    inline = ModelObjective(problem, Incremental()).losses(candidates)
    monkeypatch.setattr(emit_draft, "COPIES", 0)
    monkeypatch.setattr(emit, "MANY_LOOPS", 0)
    monkeypatch.setattr(emit_draft, "CACHE_BYTES", 0)
    outlined = Incremental()
    assert torch.equal(ModelObjective(problem, outlined).losses(candidates), inline)
    assert set(outlined.notes.values()) == {"fused"}


@pytest.mark.slow
def test_hundreds_of_time_steps_are_fused_and_exact():
    model = build(lambda: classifier(lambda: nn.LSTM(1, 2, batch_first=True), last, 2), 0).double()
    for name, parameter in model.layer.named_parameters():
        parameter.requires_grad_("hh" in name)  # one kernel is enough
    inputs = torch.randn(2, 290, 1, generator=torch.Generator().manual_seed(0)).double()
    problem = Problem(model, inputs, torch.tensor([0, 2]), F.cross_entropy)
    evaluator, _ = check_losses(problem, "lstm", RowWise(1), torch.float64)
    assert set(evaluator.notes.values()) == {"fused"}


# -- what is not followed --------------------------------------------------------------------


def test_a_layer_that_no_kernel_follows_is_evaluated_as_torch_runs_it():
    """Carrying changes through its operations one by one would take longer."""
    problem = problem_of("lstm", torch.float64)
    candidates = candidates_for(problem.model, RowWise(2), dim=3, scale=0.7)
    evaluator = Incremental(fused=False)
    ModelObjective(problem, evaluator).losses(candidates)
    assert evaluator.notes["layer.weight_ih_l0", "layer.bias_ih_l0"] == "kernels are switched off"
    assert evaluator.notes["out.weight", "out.bias"] == "incremental"


def test_weights_that_no_cache_holds_take_whole_forward_passes(monkeypatch):
    monkeypatch.setattr(plan, "CACHE_BYTES", 0)
    problem = problem_of("lstm", torch.float64)
    evaluator, _ = check_losses(problem, "lstm", RowWise(2), torch.float64)
    reason = "the weights of a loop over time, 0 MB, exceed the cache"
    assert evaluator.notes["layer.weight_hh_l0", "layer.bias_hh_l0"] == reason
    assert evaluator.notes["out.weight", "out.bias"] == "fused"


def test_packed_sequences_are_refused_in_a_sentence():
    model = Hand(
        lambda m, x: m.out(m.layer(pack_padded_sequence(x, [3, 2, 2], True))[1][-1]),
        layer=nn.GRU(FEATURES, 4, batch_first=True), out=nn.Linear(4, 3),
    )  # fmt: skip
    optimizer = PolyStep(model, subspace=RowWise(1), seed=0)
    optimizer.step(torch.randn(3, 3, FEATURES), torch.tensor([0, 1, 2]), F.cross_entropy)
    assert "a recurrent layer reads a packed sequence; give it a padded one" in str(
        optimizer.evaluator.note
    )


def test_parts_of_an_axis_share_a_storage_and_no_number():
    whole = torch.zeros(4, 6)
    left, right = whole[:, :3], whole[:, 3:]
    assert are_apart(left, right)
    assert are_apart(whole[:2], whole[2:])
    assert are_apart(whole[::2, 1:2], whole[::2, 2:3])
    for one, other in ((left, whole), (left, whole[:, 2:5]), (whole[:3], whole[2:])):
        assert not are_apart(one, other)
    assert not are_apart(whole[0].expand(3, 6), whole[1].expand(3, 6))
    assert not are_apart(whole.as_strided((3, 4), (3, 1)), whole.as_strided((3, 4), (3, 1), 3))
