"""`hardstep train`, `evaluate` and `compare` with a policy."""

import json

import pytest

from hardstep import tasks
from hardstep.rl.agent import Agent
from hardstep.tasks.policies import FIRST_TEST, FIRST_TRAIN, FIRST_VALID, NAMES, name_policy
from tests.cli.program import hardstep


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """CartPole with binary units, three steps."""
    folder = tmp_path_factory.mktemp("policy") / "run"
    words = ("cartpole", "--precision", "binary", "--steps", "3", "--out", str(folder), "--json")
    done = hardstep("train", *words)
    assert done.returncode == 0, done.stderr
    return folder, json.loads(done.stdout)


def test_a_run_says_its_return_and_interactions_and_draws_them(trained):
    folder, result = trained
    assert result["task"] == "cartpole-binary"
    assert 8 <= result["return"] == result["test_return"] <= 500
    assert result["interactions"] >= 3 * 9 * 4 * 8  # candidates, episodes, the shortest of them
    assert result["test_examples"] == 100
    assert result["selected_step"] == 3
    rows = [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]
    counts = [row["interactions"] for row in rows if row["event"] == "step"]
    assert counts == sorted(counts)
    assert counts[-1] == result["interactions"]
    assert (folder / "picture.png").exists()


def test_evaluate_plays_the_episodes_again_and_names_their_seeds(trained):
    folder, result = trained
    done = hardstep("evaluate", str(folder), "--json")
    found = json.loads(done.stdout)
    assert found["return"] == result["return"]
    assert (found["first_seed"], found["last_seed"]) == (FIRST_TEST, FIRST_TEST + 99)
    text = hardstep("evaluate", str(folder)).stdout
    assert "spread" in text
    assert "1,000,000 to 1,000,099" in text


def test_a_finished_run_reports_again_with_its_film(trained):
    folder, result = trained
    words = ("cartpole", "--precision", "binary", "--out", str(folder), "--resume")
    done = hardstep("train", *words)
    assert f"interactions {result['interactions']:,}" in done.stdout


def test_methods_are_compared_at_equal_interactions(tmp_path):
    records = tmp_path / "runs.jsonl"
    words = ("--match", "interactions", "--budget", "20000", "--seeds", "1", "--no-picture")
    methods = ("--methods", "polystep,openai-es,cma-es", "--records", str(records))
    done = hardstep("compare", "cartpole-int8", *words, *methods)
    assert done.returncode == 0, done.stderr
    assert "at equal interactions" in done.stdout
    for line in records.read_text().splitlines():
        record = json.loads(line)
        curve = record["curve"]["interactions"]
        assert record["interactions"] >= 20_000
        # The step that used them up is the last one.
        assert len(curve) < 2 or curve[-2] < 20_000 <= curve[-1] == record["interactions"]


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("train cartpole --precision int4", "no precision is called 'int4'"),
        ("train snn --precision int8", "--precision is of a policy's task"),
        ("train snn --gif", "--gif films a policy, and snn trains none"),
        ("train cartpole --data mnist", "cartpole plays an environment, so data 'mnist'"),
        ("train cartpol", "did you mean 'cartpole'?"),
    ],
)
def test_bad_input_is_one_sentence(words, sentence):
    done = hardstep(*words.split())
    assert done.returncode == 2
    assert sentence in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


def test_an_unknown_environment_is_named_with_the_nearest():
    pytest.importorskip("gymnasium")
    done = hardstep("train", "gym:CartPol-v1")
    assert done.returncode == 2
    assert "CartPole-v1" in done.stderr


@pytest.mark.parametrize("name", [name for name in NAMES if name.startswith(("cart", "pend"))])
def test_every_precision_is_a_task_whose_policy_fits(name):
    task = tasks.find(name)
    agent = task.model()
    assert isinstance(agent, Agent)
    assert agent.policy.activation == (name.partition("-")[2] or "relu")
    assert not task.selects


def test_no_episode_of_training_is_one_of_validation_or_test():
    data = tasks.find("cartpole").data(42)
    train = set(data.train.inputs.tolist())
    assert min(train) >= FIRST_TRAIN
    assert not train & set(data.valid.inputs.tolist())
    assert not train & set(data.open_test().inputs.tolist())
    assert data.valid.inputs.min() == FIRST_VALID
    assert name_policy("gym:CartPole-v1", "int8") == "gym:CartPole-v1:int8"
