"""An agent: seeds in, returns out; all candidates together play as each does alone."""

import numpy as np
import pytest
import torch

from hardstep import PolyStep, nn
from hardstep.data import Batches, Split
from hardstep.errors import ConfigError
from hardstep.evaluation import OneByOne
from hardstep.optim import presets
from hardstep.rl.agent import Agent, Rollouts, _is_resolved, minus_return
from hardstep.rl.environments import Episodes
from hardstep.rl.policies import WEIGHTS, Policy
from hardstep.rl.spaces import Continuous, Discrete, MultiDiscrete
from hardstep.rl.stacks import ACTIVATIONS
from hardstep.tasks.policies import RETURN
from hardstep.training import Checkpoint, Validation, fit


class Target:
    """Push a point to the origin for eight steps; its start and its wind come from the seed."""

    name, observations, horizon = "Target", 2, 8

    def __init__(self, space=None):
        self.space = space or Discrete(3)
        self.calls = []

    def play(self, policies, seeds, statistics=False):
        self.calls.append(list(seeds))
        num = len(policies)
        shape = (num, len(seeds))
        returns, sums, squares = np.zeros(shape), np.zeros((*shape, 2)), np.zeros((*shape, 2))
        lengths = np.zeros(shape, dtype=np.int64)
        for m, seed in enumerate(seeds):
            random = np.random.default_rng(seed)
            place, wind = np.full(num, random.normal()), random.normal()
            for _ in range(3 + seed % 6):
                seen = np.stack([place, np.full(num, wind)], axis=1)
                sums[:, m] += seen
                squares[:, m] += seen**2
                lengths[:, m] += 1
                acts = policies.act(np.arange(num), seen).reshape(num, -1)[:, 0]
                place = place + 0.3 * (acts - (self.space == Discrete(3))) + 0.05 * wind
                returns[:, m] -= place**2
        return Episodes(returns, lengths, lengths < 8, sums, squares)

    def close(self):
        pass


SPACES = [Discrete(3), MultiDiscrete((2, 3)), Continuous((-1.0,), (1.0,)),
          Continuous((-1.0,), (1.0,), squash=True)]  # fmt: skip


def make(space=None, hidden=4, first=None, **options):
    environment = Target(space)
    build = lambda: Agent(Policy(2, environment.space, hidden, **options), environment, first)  # noqa: E731
    return nn.build(build, seed=3)


@pytest.mark.parametrize("weights", WEIGHTS)
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_candidates_together_have_the_losses_of_plain_passes(activation, weights):
    seeds = torch.arange(20, 25)
    agent = make(activation=activation, weights=weights)
    opt = PolyStep(agent, presets.policy(10), seed=1)
    assert isinstance(opt.evaluator, Rollouts)
    proposal = opt.propose()
    found = opt.evaluate(proposal, seeds, None, minus_return)
    plain = PolyStep(agent, presets.policy(10), seed=1, evaluator=OneByOne())
    assert torch.allclose(found, plain.evaluate(proposal, seeds, None, minus_return), atol=1e-10)


@pytest.mark.parametrize("weights", WEIGHTS)
def test_a_linear_policy_starts_at_zero_and_hidden_units_start_apart(weights):
    space = Continuous((-1.0, -1.0), (1.0, 1.0))
    linear = nn.build(lambda: Policy(5, space, 0, weights=weights), seed=1)
    assert not any(parameter.any() for parameter in linear.parameters())
    units = nn.build(lambda: Policy(5, space, 4, weights=weights), seed=1).layers[0].weight
    assert len(units.unique(dim=0)) == 4


@pytest.mark.parametrize("kind", ["float", "int8"])
def test_the_first_policy_stands_still_where_an_action_is_a_number(kind):
    policy = Policy(3, Continuous((-1.0, -2.0), (1.0, 0.5)), 0, weights=kind, normalize=True)
    assert not policy.act(np.random.default_rng(0).normal(size=(20, 3))).any()


@pytest.mark.parametrize("size", [0.01, 1.0, 100.0])
def test_int8_weights_of_any_size_act_nearly_as_in_float(size):
    space = Continuous((-1.0, -1.0), (1.0, 1.0))
    rounded, plain = (Policy(8, space, 0, weights=kind) for kind in ("int8", "float"))
    with torch.no_grad():
        for one, other in zip(rounded.parameters(), plain.parameters(), strict=True):
            one.copy_(size * torch.randn(one.shape, generator=torch.Generator().manual_seed(0)))
            other.copy_(one)
    seen = torch.from_numpy(np.random.default_rng(0).normal(size=(100, 8)))
    wanted = plain(seen)
    assert (rounded(seen) - wanted).abs().max() < 0.03 * wanted.abs().max()


@pytest.mark.parametrize("space", SPACES)
@pytest.mark.parametrize("hidden", [0, 5])
def test_every_space_and_a_linear_policy_act_alone_as_together(space, hidden):
    agent = make(space, hidden, activation="tanh")
    seen = np.random.default_rng(0).normal(size=(50, 2))
    stack = agent.policy.stack({n: p[None] for n, p in agent.policy.named_parameters()})
    alone = np.stack([stack.act(np.zeros(1, int), one[None])[0] for one in seen])
    assert np.array_equal(agent.policy.act(seen), alone)
    assert agent.policy(torch.from_numpy(seen)).shape == (50, space.outputs)


def test_int8_units_take_at_most_255_values_and_the_largest_stays():
    hidden = np.random.default_rng(0).normal(size=(1000, 16))
    rounded = ACTIVATIONS["int8"](hidden)
    scale = np.abs(hidden).max(axis=1, keepdims=True) / 127
    assert np.allclose(rounded / scale, np.round(rounded / scale), atol=1e-9)
    assert np.abs(rounded - hidden).max() <= 0.5 * scale.max() + 1e-12
    assert np.allclose(np.abs(rounded).max(axis=1), np.abs(hidden).max(axis=1))


def test_interactions_are_counted_exactly_and_validation_is_not():
    agent = make()
    opt = PolyStep(agent, presets.policy(10), seed=1)
    seeds = torch.tensor([30, 31, 32])
    opt.step(seeds, None, minus_return)
    each = sum(3 + seed % 6 for seed in (30, 31, 32))
    assert agent.interactions == opt.evaluations * each
    agent(seeds)
    assert agent.interactions == opt.evaluations * each


def test_statistics_of_observations_are_those_of_all_that_was_seen():
    policy = Policy(3, Discrete(2), normalize=True)
    seen = np.random.default_rng(0).normal(size=(100, 3)) * [1, 10, 0.1] + [0, 5, -3]
    for part in np.split(seen, [10, 11, 60]):
        policy.observe(part.sum(axis=0), (part**2).sum(axis=0), len(part))
    mean, scale = policy.normalizer()
    assert np.allclose(mean, seen.mean(axis=0), atol=1e-10)
    assert np.allclose(1 / scale, seen.std(axis=0), rtol=1e-8)


def test_few_episodes_suffice_where_rows_are_clear_and_more_are_played_where_not():
    clear, hidden = [], []
    for seed in range(50):
        random = np.random.default_rng(seed)
        luck = random.normal(size=(1, 8)) * 100  # common to all candidates: it hides nothing
        level, noise = np.arange(10.0)[:, None], random.normal(size=(10, 8))
        clear.append(_is_resolved(level + 0.01 * noise + luck, rows=1))
        hidden.append(_is_resolved(0.01 * level + 5 * noise + luck, rows=1))
    assert all(clear)
    assert sum(hidden) <= 25  # the range of ten means of noise is about one radius
    assert _is_resolved(np.full((10, 8), -200.0), rows=2)  # a plateau: more would not help


def test_growing_takes_the_batch_in_doublings_from_its_first_episodes():
    agent = make(first=2)
    PolyStep(agent, presets.policy(10), seed=1).step(torch.arange(8), None, minus_return)
    calls = agent.environment.calls
    assert calls[0] == [0, 1]
    assert sum(calls, []) == list(range(len(sum(calls, []))))
    assert [len(call) for call in calls] == [2, 2, 4][: len(calls)]


def test_a_run_that_was_cut_ends_with_the_same_policy_and_count(tmp_path):
    def run(cut):
        agent = make(first=2, normalize=True)
        part = Split(torch.arange(64), torch.zeros(64))
        last = None
        for steps in (7, 20) if cut else (20,):
            agent = make(first=2, normalize=True)
            last = fit(
                agent,
                Batches(part, 8, seed=0),
                Validation(Batches(part, 8, 0, shuffle=False), RETURN, every=5, selects=False),
                loss_fn=minus_return,
                optimizer=PolyStep(agent, presets.policy(20), seed=0),
                steps=steps,
                checkpoint=Checkpoint(tmp_path / f"{cut}.pt"),
                resume=steps == 20 and cut,
            )
        return agent, last

    (whole, first), (cut, second) = run(False), run(True)
    for one, other in zip(whole.state_dict().values(), cut.state_dict().values(), strict=True):
        assert torch.equal(one, other)
    assert first.interactions == second.interactions > 0
    assert first.history[-1].interactions == first.interactions
    assert [s.value for s in first.history][-2:] == [s.value for s in second.history][-2:]


def test_a_policy_that_does_not_fit_its_environment_is_refused():
    with pytest.raises(ConfigError, match="Target has 2 and takes"):
        Agent(Policy(3, Discrete(3)), Target())
