"""The second table of `make bench-step`: its networks are alive, its figures are what they say."""

import ast
import copy
from pathlib import Path

import pytest
import torch
from benchmarks.step import (
    against,
    batches,
    network_activity,
    network_blocks,
    network_runs,
    networks,
    token_networks,
)
from benchmarks.step import network_report as report
from benchmarks.step.network_rows import BY_NAME, NETWORKS
from benchmarks.step.page import PAGE
from benchmarks.step.records import NETWORK_RECORDS, load
from benchmarks.step.wire import ROOT, timed
from torch import nn

from hardstep.optim import PolyStep
from hardstep.subspaces import RowWise


@pytest.fixture
def drawn(monkeypatch):
    """Pictures as they are where there is no data."""
    monkeypatch.delenv("HARDSTEP_DATA", raising=False)
    return batches.labeled(0, 16)[0]


def test_the_networks_import_nothing_but_torch():
    trees = [ast.parse(Path(one.__file__).read_text()) for one in (networks, token_networks)]
    nodes = [node for tree in trees for node in ast.walk(tree)]
    named = [n.module for n in nodes if isinstance(n, ast.ImportFrom)]
    named += [a.name for n in nodes if isinstance(n, ast.Import) for a in n.names]
    assert {name.split(".")[0] for name in named} == {
        "benchmarks",
        "collections",
        "torch",
        "typing",
    }
    assert {name for name in named if name.startswith("b")} == {token_networks.__name__}


@pytest.mark.parametrize("name", [row.name for row in NETWORKS])
def test_every_network_has_the_size_of_its_row_and_is_alive(name, drawn):
    row = BY_NAME[name]
    inputs = drawn if row.reads == "pictures" else batches.READ[row.reads](0, 4)[0]
    model = networks.build(row.network, inputs)
    assert sum(parameter.numel() for parameter in model.parameters()) == row.parameters
    assert not model.training
    shares = network_activity.measure(model, inputs)
    hard = [layer for layer in model.modules() if isinstance(layer, network_activity.HARD)]
    assert len(shares) == len(hard)
    smooth = ("lstm", "gru", "attention", "transformer")  # these have few hard values
    assert len(hard) >= 3 or name.startswith(smooth)
    for share in shares.values():
        assert share["units"] > 0.5
        assert 0.01 < share["positive"] < 0.9
        assert share.get("saturated", 0.0) < 0.01


def test_a_network_that_does_not_fire_is_seen_to_be_dead(drawn):
    model = networks.build("spiking-10", drawn)
    with torch.no_grad():
        model.conv2.weight.zero_()
    shares = network_activity.measure(model, drawn)
    assert shares["spikes1"]["units"] > 0.5
    assert shares["spikes2"] == {"units": 0.0, "positive": 0.0}


def test_labels_of_drawn_pictures_are_where_their_ink_is(drawn):
    pictures, labels = batches.labeled(0, 16)
    assert torch.equal(pictures, drawn)
    assert len(labels.unique()) > 4
    ink = [float(part.mean()) for part in pictures[3].flatten().tensor_split(10)]
    assert int(labels[3]) == ink.index(max(ink))


def test_the_blocks_of_a_step_are_timed_apart():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 3))
    optimizer = PolyStep(model, subspace=RowWise(rank=1), seed=0)
    data = torch.randn(8, 6), torch.randint(3, (8,))
    plain = PolyStep(copy.deepcopy(model), subspace=RowWise(rank=1), seed=0)
    with network_blocks.timed_blocks() as blocks, timed() as taken:
        loss = optimizer.step(*data, nn.CrossEntropyLoss())
    assert sorted(blocks) == [network_blocks.RECORDING, 0, 1]
    assert all(clocks["wall"] > 0 for clocks in blocks.values())
    assert sum(clocks["wall"] for clocks in blocks.values()) < taken["wall"]
    assert loss == plain.step(*data, nn.CrossEntropyLoss())


def test_the_operations_of_all_candidates_are_counted():
    torch.manual_seed(0)
    layers = nn.Conv2d(1, 8, 3), networks.Sign(), nn.Conv2d(8, 16, 3), nn.Flatten()
    optimizer = PolyStep(nn.Sequential(*layers), subspace=RowWise(rank=1), seed=0)
    data = torch.randn(4, 1, 5, 5), torch.randint(3, (4,)), nn.CrossEntropyLoss()
    optimizer.step(*data)  # compares with plain forward passes, which would be counted
    with network_blocks.counted_operations() as counted:
        optimizer.step(*data)
    assert set(optimizer.evaluator.notes.values()) == {"events"}
    costs = {one.block: one.cost.operations for one in optimizer.explain(*data).parameters}
    assert sorted(counted) == sorted(costs) == [0, 1]
    for block, operations in counted.items():
        assert 0.2 * costs[block] < operations < 5 * costs[block]


def record(conv2=0.3, theirs=None):
    """A recorded row of 100 probes: a forward pass takes 0.1 s, a step 0.5 s."""
    blocks = {
        "": {"wall": 0.05, "cpu": 0.05},
        "conv1.weight": {"wall": 0.1, "cpu": 0.2},
        "conv2.weight": {"wall": conv2, "cpu": 0.4},
        "linear.weight": {"wall": 0.01, "cpu": 0.02},
    }
    shapes = {"conv1.weight": (4, 1, 3, 3), "conv2.weight": (4, 4, 3, 3), "linear.weight": (4, 4)}
    probes = {"conv1.weight": 20, "conv2.weight": 20, "linear.weight": 60}
    step = {"wall": 0.5, "cpu": 1.0, "foreign": 0.0, "blocks": blocks}
    explained = {
        name: {"tier": "events", "reason": "", "probes": probes[name], "operations": 1e6}
        | {"shapes": [shape]}
        for name, shape in shapes.items()
    }
    return {
        "ours": {
            "forwards": [{"wall": 0.1, "cpu": 0.1}],
            "steps": [step],
            "parameters": 9,
            "pictures": "drawn",
            "probes": 100,
            "active": {"bits": {"units": 1.0, "positive": 0.25, "saturated": 0.125}},
            "versions": {"torch": "2"},
        },
        "theirs": theirs,
        "explained": {"forward": 1e8, "blocks": explained},
        "batched": {"wall": 5.0, "cpu": 5.0, "share": 0.5},
        "peaks": {"peak_operations": 1e9, "peak_bytes": 1e9},
    }


def derived(**changes):
    machine = {"processor": "some", "threads": 2, "cores": 2}
    place = {"kind": "network", "batch": 64, "repeats": 1, "date": "2026-01-01", "machine": machine}
    return network_runs.derive(BY_NAME["lenet"], record(**changes)) | place


def test_a_figure_is_the_forward_passes_that_a_step_replaces_over_its_time():
    found = derived()
    assert found["ours"]["figure"] == pytest.approx({"wall": 0.1 * 100 / 0.5, "cpu": 10.0})
    block = found["explained"]["blocks"]["conv1.weight"]
    assert block["figure"] == pytest.approx({"wall": 0.1 * 20 / 0.1, "cpu": 10.0})
    assert block["of_peak"] == pytest.approx(1e6 * 20 / 0.1 / 1e9)
    assert found["batched"]["ratio"]["wall"] == pytest.approx(10.0)
    assert found["ours"]["recording"] == {"wall": 0.05, "cpu": 0.05}


def test_convolutions_have_to_reach_their_shares_and_a_miss_is_shown():
    found = derived()
    assert report.least(found) == pytest.approx({"conv1.weight": 2.0, "conv2.weight": 20 / 3})
    found["ours"]["figure"]["wall"] = 6.0
    assert report.least(found)["conv1.weight"] == 1.5
    assert "missed" not in report.text([derived(conv2=0.29)])
    assert report.text([derived(conv2=0.31)]).count("missed") == 1


def test_the_table_says_what_was_timed_in_part_or_not_at_all():
    assert "our batched one on 50%" in report.text([derived()])
    step = {"wall": 4.0, "cpu": 8.0, "share": 0.25, "probes": 70}
    text = report.text([derived(theirs={"steps": [step], "versions": {}})])
    assert "4.0 s, 70 probes (8.0×)" in text
    assert "timed on 25.0% of its probes" in text
    assert "`no rule`" in report.text([derived(theirs={"refused": "no rule"})])


def test_the_newest_record_of_a_row_is_written_between_the_markers(tmp_path):
    page = tmp_path / PAGE
    page.write_text(f"before {report.BEGIN} old {report.END} after")
    old = derived() | {"title": "the older"}
    report.write([old, derived()], tmp_path)
    text = page.read_text()
    assert text.startswith("before ")
    assert text.endswith(" after")
    assert "| LeNet-5, INT8 | 9 | 100 | 100 ms | 5 ms | **20** | 50 | 120 |" in text
    assert "the older" not in text
    assert (tmp_path / report.CHART).stat().st_size > 1000


def test_the_page_says_what_the_records_say():
    page = (ROOT / "docs" / "lab" / PAGE).read_text()
    made = report.text(load(NETWORK_RECORDS))
    assert f"{report.BEGIN}\n{made}\n{report.END}" in page


def test_an_older_commit_is_checked_out_for_a_while():
    if not (ROOT / ".git").exists():
        pytest.skip("not a clone")
    with against.checkout("HEAD") as tree:
        assert tree.revision == against.resolve("HEAD")
        assert (tree.folder / "src" / "hardstep" / "__init__.py").is_file()
    assert not tree.folder.exists()
    with pytest.raises(RuntimeError, match="no-such-commit"):
        against.resolve("no-such-commit")


def test_rows_beside_an_older_commit_take_turns():
    asked = []

    class Side:
        def __init__(self, name):
            self.name = name

        def ask(self, request, seed):
            asked.append((self.name, seed))
            return {"wall": 1.0}

    class Plan:
        repeats = 2

    newer, older = against.take_turns(Plan(), Side("newer"), Side("older"))
    assert len(newer) == len(older) == 2
    assert asked == [
        ("older", 0), ("newer", 0), ("newer", 1), ("older", 1), ("older", 2), ("newer", 2),
    ]  # fmt: skip


def test_drawn_words_are_as_rare_as_words_are_and_end_in_zeros(drawn):
    words, labels = batches.read_words(0, 64)
    assert words.shape == (64, token_networks.TOKENS - 1)
    assert 300 < len(words.unique()) < 2000
    assert ((words[:, 1:] > 0) <= (words[:, :-1] > 0)).all()
    assert 10 < int(labels.sum()) < 54
