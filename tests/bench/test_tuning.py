import json
import math

import pytest

from hardstep import tasks
from hardstep.bench import load, tuning
from hardstep.bench.methods import KNOWN_OPTIONS, METHODS
from hardstep.bench.protocol import Budget, Trained
from hardstep.bench.tuning import SETTINGS, grid, tune
from hardstep.cli.tune import TuneOptions, run_tune

TASK = tasks.find("mlp", "digits")


@pytest.mark.parametrize("method", METHODS)
def test_every_method_has_nine_configurations_per_stage_of_options_it_knows(method):
    settings = SETTINGS[method]
    centres = {s.name: s.centre for s in settings}
    for stage in (1, 2):
        found = list(grid(settings, centres, stage))
        assert len(found) == 9
        assert len({json.dumps(c) for c in found}) == 9
        assert centres in found or any(s.whole for s in settings)
        assert all(set(c) <= set(KNOWN_OPTIONS[method]) for c in found)


def fake(score):
    def train(task, data, method, seed, budget, options):
        record = {"valid": score(options), "seed": seed, "budget": budget}
        return Trained(record, None, None, None)

    return train


def test_the_second_stage_is_recentred_on_the_best_of_the_first(monkeypatch):
    def score(options):  # best at 0.6 and 0.3
        distance = math.log(options["sigma"] / 0.6) ** 2
        return -distance - math.log(options["learning_rate"] / 0.3) ** 2

    monkeypatch.setattr(tuning, "train", fake(score))
    tried = tune(TASK, "digits", "openai-es", Budget("steps", 1), [7, 8])
    assert len(tried) == 18
    first = max((t for t in tried if t.stage == 1), key=lambda t: t.valid)
    assert first.options == pytest.approx({"sigma": 0.3, "learning_rate": 0.15})
    second = [t.options for t in tried if t.stage == 2]
    assert first.options in [pytest.approx(o) for o in second]
    ratios = sorted({round(o["sigma"] / 0.3, 6) for o in second})
    assert ratios == pytest.approx([3**-0.5, 1, 3**0.5], abs=1e-5)
    assert tried[0].valid == max(t.valid for t in tried)
    assert tried[0].valid > first.valid


def test_every_configuration_gets_the_same_budget_and_the_tuning_seeds(monkeypatch):
    monkeypatch.setattr(tuning, "train", fake(lambda options: 0.0))
    tried = tune(TASK, "digits", "adam", Budget("evals", 500), [100, 101])
    assert {(r["seed"], r["budget"]) for t in tried for r in t.records} == {
        (100, Budget("evals", 500)),
        (101, Budget("evals", 500)),
    }


def test_the_command_keeps_the_test_set_closed_and_says_how_to_go_on(tmp_path, capsys):
    options = TuneOptions("mlp", "mezo", match="steps", budget=1, records=tmp_path / "tuning.jsonl")
    assert run_tune(options) == 0
    assert "hardstep compare mlp --match steps --option mezo." in capsys.readouterr().out
    loaded = load(tmp_path / "tuning.jsonl")
    assert len(loaded.records) == 18
    assert {r["test_reads"] for r in loaded.records} == {0}
    assert all("test" not in r for r in loaded.records)
