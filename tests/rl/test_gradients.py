"""PPO, DQN and ARS from stable-baselines3, quantized; which of them have gradients."""

import tempfile

import numpy as np
import pytest
import torch

pytest.importorskip("stable_baselines3")
pytest.importorskip("sb3_contrib")
gymnasium = pytest.importorskip("gymnasium")

from hardstep.baselines import stable  # noqa: E402
from hardstep.errors import ConfigError  # noqa: E402

SMALL_PPO = {"n_steps": 128, "n_epochs": 2}  # the rest is as by default


@pytest.fixture(autouse=True)
def _one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def options_of(method):
    return SMALL_PPO if method.startswith("ppo") else {}


def largest_gradients(method, precision, environment_id="CartPole-v1", interactions=256):
    """Of every trainable parameter the largest |gradient| in all losses of a short training."""
    environment = gymnasium.make(environment_id)
    model = stable.build(method, environment, precision, 0, **options_of(method))
    parameters = list(model.policy.optimizer.param_groups[0]["params"])
    largest = torch.zeros(len(parameters))
    losses = []

    def look(*_):
        losses.append(1)
        assert all(p.grad is not None for p in parameters)
        now = torch.stack([p.grad.abs().max() for p in parameters])
        torch.maximum(largest, now, out=largest)

    model.policy.optimizer.register_step_pre_hook(look)
    before = [p.detach().clone() for p in parameters]
    model.learn(interactions)
    environment.close()
    assert len(losses) >= 8
    moved = [bool((p.detach() != b).any()) for p, b in zip(parameters, before, strict=True)]
    return largest, moved


@pytest.mark.parametrize("precision", ["int8", "binary"])
@pytest.mark.parametrize("method", ["ppo", "dqn"])
@pytest.mark.parametrize("environment_id", ["CartPole-v1", "Acrobot-v1"])
def test_quantized_networks_have_exactly_zero_gradients(method, precision, environment_id):
    largest, moved = largest_gradients(method, precision, environment_id)
    assert len(largest) == (12 if method == "ppo" else 6)  # weights and biases of all layers
    assert (largest == 0).all()
    assert not any(moved)


@pytest.mark.parametrize("method", ["ppo", "dqn"])
def test_float_networks_have_gradients(method):
    largest, moved = largest_gradients(method, "float")
    assert (largest > 0).all()
    assert all(moved)


@pytest.mark.parametrize("precision", ["int8", "binary"])
def test_the_straight_through_estimator_has_gradients(precision):
    largest, moved = largest_gradients("ppo-ste", precision)
    assert (largest > 0).all()
    assert all(moved)


@pytest.mark.parametrize("straight_through", [False, True])
def test_int8_rounds_each_vector_to_127_steps_of_its_largest_value(straight_through):
    x = torch.tensor([[127.0, -3.4, 0.6], [-1.27, 0.004, 0.0], [0.0, 0.0, 0.0]])
    rounded = stable.Quantize("int8", straight_through)(x)
    expected = torch.tensor([[127.0, -3.0, 1.0], [-1.27, 0.0, 0.0], [0.0, 0.0, 0.0]])
    torch.testing.assert_close(rounded, expected)
    alone = torch.stack([stable.Quantize("int8", straight_through)(row) for row in x])
    assert torch.equal(rounded, alone)


@pytest.mark.parametrize("straight_through", [False, True])
def test_sign_is_plus_one_at_zero(straight_through):
    x = torch.tensor([-2.0, -0.3, -0.0, 0.0, 0.3, 7.1])
    signs = stable.Quantize("binary", straight_through)(x)
    assert signs.tolist() == [-1, -1, 1, 1, 1, 1]


def test_the_estimator_passes_gradients_through_sign_up_to_one():
    x = torch.tensor([-1.5, -1.0, 0.2, 1.0, 1.1], requires_grad=True)
    stable.Quantize("binary", straight_through=True)(x).sum().backward()
    assert x.grad.tolist() == [0, 1, 1, 1, 0]
    x = torch.tensor([-1.5, 0.2, 3.0], requires_grad=True)
    stable.Quantize("int8", straight_through=True)(x).sum().backward()
    assert x.grad.tolist() == [1, 1, 1]


@pytest.mark.parametrize("method", ["ppo-ste", "dqn", "ars-mlp"])
def test_a_binary_network_sends_only_signs_between_layers(method):
    environment = gymnasium.make("Acrobot-v1")
    model = stable.build(method, environment, "binary", 0, **options_of(method))
    inputs, outputs = [], []
    for module in model.policy.modules():
        if isinstance(module, torch.nn.Linear) and module.in_features != 6:
            module.register_forward_hook(lambda _, x, __: inputs.append(x[0]))
        if isinstance(module, stable.Quantize):
            module.register_forward_hook(lambda _, __, y: outputs.append(y))
    model.predict(environment.observation_space.sample(), deterministic=True)
    environment.close()
    assert inputs
    assert all(x.abs().eq(1).all() for x in inputs + outputs)
    assert len(outputs) == len(inputs) + 1


@pytest.mark.parametrize("method", ["ppo", "dqn", "ars"])
def test_in_float_the_network_is_the_library_s_own(method):
    environment = gymnasium.make("CartPole-v1")
    model = stable.build(method, environment, "float", 0)
    environment.close()
    assert not [m for m in model.policy.modules() if isinstance(m, stable.Quantize)]


@pytest.mark.parametrize(
    ("method", "precision"),
    [
        ("ppo", "float"),
        ("ppo-ste", "int8"),
        ("dqn", "binary"),
        ("ars", "int8"),
        ("ars-mlp", "float"),
    ],
)
def test_a_run_counts_every_interaction_of_its_training(method, precision, monkeypatch):
    steps, plays = [0], []
    step = gymnasium.envs.classic_control.CartPoleEnv.step

    def count(self, action):
        steps[0] += 1
        return step(self, action)

    monkeypatch.setattr(gymnasium.envs.classic_control.CartPoleEnv, "step", count)
    monkeypatch.setattr(stable, "play", lambda *_: plays.append(steps[0]) or [22.0, 261.0])
    points = []
    fields = stable.train(
        method, "CartPole-v1", precision, 3, 300, points.append, **options_of(method)
    )
    assert plays == [fields["interactions"]]
    assert 300 <= fields["interactions"] <= (300 + 16 * 500 if method.startswith("ars") else 384)
    curve = fields["curve"]
    assert curve["interactions"] == [point.interactions for point in points]
    assert set(np.diff(curve["interactions"])) == {6}  # 2 % of the budget
    assert curve["interactions"][-1] == 300
    assert curve["steps"][-1] <= fields["steps"] == fields["selected_step"] > 0
    assert curve["cpu_seconds"][-1] <= fields["cpu_seconds"]
    assert fields["normalized"] == pytest.approx((141.5 - 22) / 478)


def test_a_run_is_repeatable():
    runs = [stable.train("ppo-ste", "CartPole-v1", "binary", 5, 200, **SMALL_PPO) for _ in range(2)]
    assert runs[0]["test"] == runs[1]["test"]
    assert runs[0]["curve"]["value"] == runs[1]["curve"]["value"]


def test_the_test_plays_each_of_its_seeds_to_the_end():
    class Left:
        def predict(self, states, deterministic):
            assert deterministic
            return np.zeros(len(states), dtype=int), None

    returns = stable.play(Left(), "CartPole-v1", episodes=5)
    expected = []
    environment = gymnasium.make("CartPole-v1")
    for seed in range(1_000_000, 1_000_005):
        environment.reset(seed=seed)
        length, terminated = 0, False
        while not terminated:
            terminated = environment.step(0)[2]
            length += 1
        expected.append(length)
    environment.close()
    assert returns == expected


@pytest.mark.parametrize(
    ("environment_id", "returns", "normalized"),
    [
        ("CartPole-v1", [500.0, 500.0], 1.0),
        ("CartPole-v1", [9.0, 10.0], 0.0),
        ("CartPole-v1", [500.0, 22.0], 0.5),
        ("Acrobot-v1", [-500.0, -80.0], 0.5),
        ("Acrobot-v1", [-60.0, -520.0], 0.5),  # clipped after averaging
        ("Acrobot-v1", [-70.0, -71.0], 1.0),
    ],
)
def test_scores_lie_between_the_anchors(environment_id, returns, normalized):
    assert stable.score(returns, environment_id)["normalized"] == pytest.approx(normalized)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("pppo", "CartPole-v1", "float", 0, 10), "pppo"),
        (("ppo", "CartPole-v1", "int4", 0, 10), "int4"),
        (("ppo", "CartPole-v0", "int8", 0, 10), "CartPole-v1"),
        (("ppo-ste", "CartPole-v1", "float", 0, 10), "use ppo"),
        (("ppo", "CartPole-v1", "float", 0, 0), "interactions"),
    ],
)
def test_what_is_unknown_is_refused(arguments, sentence):
    with pytest.raises(ConfigError, match=sentence):
        stable.train(*arguments)


def test_a_run_says_and_writes_nothing(tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(stable, "play", lambda *_: [0.0])
    for method in ("ppo", "dqn", "ars"):
        stable.train(method, "CartPole-v1", "int8", 0, 50, **options_of(method))
    assert capfd.readouterr() == ("", "")
    assert not list(tmp_path.iterdir())
