"""Compiled environments do what gymnasium's do, with the same bits in any company."""

import numpy as np
import pytest

pytest.importorskip("gymnasium")

import gymnasium

from hardstep.errors import ConfigError
from hardstep.rl.classic import CLASSIC, observe, play, starts, step
from hardstep.rl.classic.mathematics import sine_and_cosine, tanh
from tests.rl.classic_reference import make_layers, play_plainly, visit

ENVIRONMENTS = list(CLASSIC)
# Gymnasium squares Pendulum's torque by powf, whose last bit is wrong once in a thousand times.
REWARD = dict.fromkeys(ENVIRONMENTS, 1e-10) | {"Pendulum-v1": 5e-10}
KINDS = [("relu", 16), ("tanh", 16), ("int8", 7), ("binary", 16), ("relu", 0)]


def run(environment, layers, activation="relu", num_starts=20, **options):
    """Play with what the test does not care about."""
    size = CLASSIC[environment].observations
    settings = {"horizon": CLASSIC[environment].horizon, "threads": 1} | options
    mean, scale = np.linspace(-0.01, 0.02, size), np.linspace(0.8, 1.3, size)
    chosen = starts(environment, range(num_starts))
    return play(environment, layers, activation, mean, scale, chosen, **settings)


def same_bits(one, other):
    return all(
        (a is None and b is None) or a.tobytes() == b.tobytes()
        for a, b in zip(one, other, strict=True)
    )


@pytest.mark.parametrize("environment", ENVIRONMENTS)
def test_a_step_is_gymnasiums(environment):
    visits = visit(environment, 20_000)
    after, rewards, terminated = step(environment, visits.states, visits.actions)
    np.testing.assert_allclose(after, visits.after, rtol=0, atol=1e-10)
    np.testing.assert_allclose(rewards, visits.rewards, rtol=0, atol=REWARD[environment])
    assert np.array_equal(terminated, visits.terminated)
    shown = observe(environment, visits.after)
    assert shown.dtype == visits.observations.dtype == np.float32
    np.testing.assert_allclose(shown, visits.observations, rtol=2e-7, atol=1e-14)


@pytest.mark.parametrize("environment", ENVIRONMENTS)
def test_starts_are_those_of_reset(environment):
    env = gymnasium.make(environment).unwrapped
    seeds = [*range(50), 2**31, 2**40 + 1]
    found = starts(environment, seeds)
    shown = observe(environment, found)
    for seed, state, seen in zip(seeds, found, shown, strict=True):
        first, _ = env.reset(seed=seed)
        assert np.array_equal(state, np.array(env.state, dtype=np.float64))
        assert np.array_equal(seen, first)


@pytest.mark.parametrize(("activation", "hidden"), KINDS)
@pytest.mark.parametrize("environment", ENVIRONMENTS)
def test_episodes_are_those_of_a_plain_loop(environment, activation, hidden):
    layers = make_layers(environment, 3, hidden, seed=1)
    # Acrobot is chaotic: differences in the last bit of a sine are visible after a minute.
    horizon = 60 if environment == "Acrobot-v1" else 120
    found = run(environment, layers, activation, 8, horizon=horizon, statistics=True)
    size = CLASSIC[environment].observations
    mean, scale = np.linspace(-0.01, 0.02, size), np.linspace(0.8, 1.3, size)
    env = gymnasium.make(environment).unwrapped
    for candidate in range(3):
        for seed in range(8):
            wanted = play_plainly(env, layers, candidate, activation, mean, scale, seed, horizon)
            place = candidate, seed
            assert found.returns[place] == pytest.approx(wanted.total, rel=1e-9)
            assert found.lengths[place] == wanted.length
            assert found.terminated[place] == wanted.terminated
            assert found.sums is not None
            assert found.squares is not None
            np.testing.assert_allclose(found.sums[place], wanted.sums, rtol=0, atol=1e-9)
            np.testing.assert_allclose(found.squares[place], wanted.squares, rtol=0, atol=1e-9)


@pytest.mark.parametrize("environment", ENVIRONMENTS)
def test_bits_do_not_depend_on_threads_or_company(environment):
    layers = make_layers(environment, 40, 5)
    whole = run(environment, layers, "tanh", statistics=True, horizon=50)
    assert same_bits(
        run(environment, layers, "tanh", threads=2, statistics=True, horizon=50), whole
    )
    assert same_bits(run(environment, layers, "tanh", horizon=50)[:3], whole[:3])
    for number in (0, 17, 39):
        own = [(weights[[number]], bias[[number]]) for weights, bias in layers]
        alone = run(environment, own, "tanh", statistics=True, horizon=50)
        assert same_bits(alone, [column[[number]] for column in whole])


@pytest.mark.parametrize("place", [0, 1])
@pytest.mark.parametrize("environment", ENVIRONMENTS)
def test_outputs_that_are_not_numbers_end_an_episode(environment, place):
    layers = make_layers(environment, 3, 4)
    whole = run(environment, layers, horizon=30)
    layers[place][1][1] = np.nan
    found = run(environment, layers, horizon=30)
    assert np.isnan(found.returns[1]).all()
    assert not found.terminated[1].any()
    assert not found.lengths[1].any()
    others = [0, 2]
    assert same_bits([c[others] for c in found[:3]], [c[others] for c in whole[:3]])


@pytest.mark.parametrize("environment", ENVIRONMENTS)
def test_the_horizon_cuts_episodes(environment):
    found = run(environment, make_layers(environment, 4, 3), horizon=5)
    assert (found.lengths == 5).all()
    assert not found.terminated.any()
    if environment == "CartPole-v1":
        assert (found.returns == 5).all()


def test_a_car_that_gains_speed_arrives():
    forward = [(np.array([[[0.0, -1.0], [0.0, 0.0], [0.0, 1.0]]]), np.zeros((1, 3)))]
    chosen = starts("MountainCar-v0", range(50))
    found = play(
        "MountainCar-v0", forward, "relu", np.zeros(2), np.ones(2), chosen, horizon=200, threads=2
    )
    assert found.terminated.all()
    assert (found.returns == -found.lengths).all()
    assert 100 < found.lengths.mean() < 140


def test_an_acrobot_that_is_pumped_swings_up():
    pump = [(np.array([[[0.0] * 5 + [-1.0], [0.0] * 6, [0.0] * 5 + [1.0]]]), np.zeros((1, 3)))]
    chosen = starts("Acrobot-v1", range(50))
    found = play(
        "Acrobot-v1", pump, "relu", np.zeros(6), np.ones(6), chosen, horizon=500, threads=1
    )
    assert found.terminated.all()
    assert (found.returns == 1 - found.lengths).all()  # the last step costs nothing


def test_no_candidates_and_no_starts_are_no_episodes():
    layers = make_layers("CartPole-v1", 0, 4)
    assert run("CartPole-v1", layers).returns.shape == (0, 20)
    assert run("CartPole-v1", make_layers("CartPole-v1", 2, 4), num_starts=0).returns.shape == (
        2,
        0,
    )


def test_sine_cosine_and_tanh_are_exact():
    random = np.random.default_rng(0)
    for x in [*random.uniform(-100, 100, 2000), *random.normal(size=200) * 1e-6, 0.0]:
        assert sine_and_cosine(x) == pytest.approx((np.sin(x), np.cos(x)), rel=0, abs=4e-16)
        assert tanh(x / 10) == pytest.approx(np.tanh(x / 10), rel=1e-15)
    assert (tanh(np.inf), tanh(-np.inf)) == (1, -1)
    assert np.isnan(tanh(np.nan))


def test_what_does_not_fit_is_refused():
    layers = make_layers("CartPole-v1", 2, 4)
    with pytest.raises(ConfigError, match="did you mean 'CartPole-v1'"):
        starts("CartPole", [0])
    with pytest.raises(ConfigError, match="no activation of a policy is called 'rele'"):
        run("CartPole-v1", layers, "rele")
    with pytest.raises(ConfigError, match=r"needs weights \(2, 4, 6\) .* got \(2, 4, 4\)"):
        run("Acrobot-v1", layers)
    with pytest.raises(ConfigError, match="one or two layers, got 3"):
        run("CartPole-v1", [*layers, layers[1]])
    with pytest.raises(ConfigError, match=r"states must be \(M, 4\), got \(3, 2\)"):
        observe("CartPole-v1", np.zeros((3, 2)))
    with pytest.raises(ConfigError, match="a seed must be a whole number >= 0, got -1"):
        starts("CartPole-v1", [-1])
    with pytest.raises(ConfigError, match="horizon must be a whole number >= 1"):
        run("CartPole-v1", layers, horizon=0)
