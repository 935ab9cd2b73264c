import re
import shutil
import subprocess
from itertools import product

import numpy as np
import pytest
import torch

from hardstep.errors import ConfigError, DataError
from hardstep.nn import Binary
from hardstep.rl import export
from hardstep.rl.policies import Policy
from hardstep.rl.spaces import Continuous, Discrete, MultiDiscrete

NUM = 10_000
TWO = Discrete(2)
FLAGS = ["-std=c99", "-pedantic", "-Wall", "-Wextra", "-Werror"]
MAIN = """
#include <stdio.h>
#include "policy.h"

int main(void)
{{
    float observation[{observations}];
    while (fread(observation, sizeof observation, 1, stdin) == 1) {{
        {act}
        fflush(stdout);
    }}
    return 0;
}}
"""
ONE = 'printf("%d\\n", policy_act(observation));'
MANY = """{kind} action[{num}]; int k;
        policy_act(observation, action);
        for (k = 0; k < {num}; k++) printf("{form} ", action[k]);
        printf("\\n");"""


def make(*arguments, seed=0, **options):
    torch.manual_seed(seed)
    policy = Policy(*arguments, **options)
    with torch.no_grad():
        for layer in policy.layers:
            layer.weight.normal_()
            layer.bias.normal_(std=0.1)  # CartPole's observations are small, too
    return policy


def compile_policy(policy, folder, level="-O1"):
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("there is no C compiler")
    act, num = ONE, policy.space.outputs
    if isinstance(policy.space, MultiDiscrete):
        act = MANY.format(kind="int", num=len(policy.space.nums), form="%d")
    if isinstance(policy.space, Continuous):
        act = MANY.format(kind="float", num=num, form="%.9g")
    export.write(folder / "policy.h", policy)
    (folder / "main.c").write_text(MAIN.format(observations=policy.observations, act=act))
    program = folder / "policy"
    command = [compiler, *FLAGS, level, str(folder / "main.c"), "-o", str(program), "-lm"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return program


def run(program, observations):
    data = np.ascontiguousarray(observations, dtype=np.float32).tobytes()
    done = subprocess.run([program], input=data, capture_output=True, timeout=60, check=True)
    lines = done.stdout.splitlines()
    actions = np.array([line.split() for line in lines]).astype(np.float64)
    return actions[:, 0] if actions.shape[1] == 1 else actions


def play(environment, act, seed):
    observation, _ = environment.reset(seed=seed)
    total, over = 0.0, False
    while not over:
        observation, reward, terminated, truncated, _ = environment.step(act(observation))
        total, over = total + float(reward), terminated or truncated
    return total


@pytest.fixture(scope="module")
def visited():
    gymnasium = pytest.importorskip("gymnasium")
    environment = gymnasium.make("CartPole-v1")
    rng, seen = np.random.default_rng(0), []
    while len(seen) < NUM:
        observation, _ = environment.reset(seed=len(seen))
        over = False
        while not over:
            seen.append(observation)
            # Mostly back to the middle: long episodes reach more states than chance does.
            back = int(observation[2] + 0.3 * observation[3] + 0.1 * observation[0] > 0)
            choice = back if rng.random() < 0.9 else int(rng.integers(2))
            observation, _, terminated, truncated, _ = environment.step(choice)
            over = terminated or truncated
    environment.close()
    return np.array(seen[:NUM])


KINDS = ("float", "int8", "binary", "ternary")
CASES = [
    *((weights, 16, name) for weights, name in product(KINDS, ("relu", "int8", "binary"))),
    *((weights, 0, "relu") for weights in KINDS),
    ("float", 16, "tanh"),
]


@pytest.mark.parametrize(("weights", "hidden", "activation"), CASES)
def test_the_compiled_policy_takes_the_same_actions(weights, hidden, activation, visited, tmp_path):
    policy = make(4, TWO, hidden=hidden, activation=activation, weights=weights)
    program = compile_policy(policy, tmp_path)
    random = np.random.default_rng(1).normal(size=(NUM, 4)).astype(np.float32)
    for observations in (visited, random):
        wanted = policy.act(observations)
        assert 0 < wanted.sum() < NUM
        assert np.array_equal(run(program, observations), wanted)


@pytest.mark.parametrize("weights", ["int8", "binary"])
def test_cartpole_gives_the_compiled_policy_the_same_returns(weights, tmp_path):
    gymnasium = pytest.importorskip("gymnasium")
    policy = make(4, TWO, activation="binary", weights=weights, seed=3)
    program = compile_policy(policy, tmp_path)
    environment = gymnasium.make("CartPole-v1")
    with subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:

        def ask(observation):
            process.stdin.write(observation.tobytes())
            process.stdin.flush()
            return int(process.stdout.readline())

        for seed in range(10):
            alone = play(environment, lambda seen: int(policy.act(seen[None])[0]), seed)
            assert play(environment, ask, seed) == alone
    environment.close()


def test_an_observation_is_normalized_as_in_python(tmp_path):
    policy = make(3, Discrete(4), normalize=True)
    seen = np.random.default_rng(2).normal([1, -20, 0.5], [0.1, 7, 3], size=(500, 3))
    policy.observe(seen.sum(axis=0), (seen**2).sum(axis=0), 500)
    program = compile_policy(policy, tmp_path)
    observations = seen.astype(np.float32)
    assert np.array_equal(run(program, observations), policy.act(observations))
    assert "double policy_mean[3]" in (tmp_path / "policy.h").read_text()


def test_several_choices_are_made_side_by_side(tmp_path):
    policy = make(3, MultiDiscrete((2, 4, 3)), activation="int8", weights="int8")
    program = compile_policy(policy, tmp_path)
    observations = np.random.default_rng(3).normal(size=(500, 3)).astype(np.float32)
    actions = policy.act(observations)
    assert np.array_equal(run(program, observations), actions)
    assert len(np.unique(actions, axis=0)) > 4


@pytest.mark.parametrize(
    "space",
    [
        Continuous((-1.0, -0.3), (0.1, 2.0)),
        Continuous((-1.0, -0.3), (0.1, 2.0), squash=True),
        Continuous((-np.inf, 0.0), (np.inf, np.inf)),
    ],
    ids=["clipped", "squashed", "open"],
)
def test_continuous_actions_agree_to_the_last_digits(space, tmp_path):
    policy = make(3, space, activation="tanh")
    program = compile_policy(policy, tmp_path)
    observations = np.random.default_rng(4).normal(size=(500, 3)).astype(np.float32)
    np.testing.assert_allclose(
        run(program, observations), policy.act(observations), rtol=2e-7, atol=1e-12
    )


@pytest.mark.parametrize("weights", ["float", "int8"])
def test_parameters_in_float64_lose_nothing(weights, visited, tmp_path):
    policy = make(4, TWO, weights=weights).double()
    with torch.no_grad():
        for parameter in policy.parameters():
            parameter.add_(1e-12)
    program = compile_policy(policy, tmp_path)
    assert "double policy_hidden_weights" in (tmp_path / "policy.h").read_text()
    assert np.array_equal(run(program, visited), policy.act(visited))


def test_signs_have_the_scale_of_their_layer(visited, tmp_path):
    policy = make(4, TWO, weights="binary")
    for layer in policy.layers:
        layer.transform = Binary(scale=0.3)
    program = compile_policy(policy, tmp_path)
    assert np.array_equal(run(program, visited), policy.act(visited))


def test_the_size_is_that_of_the_arrays():
    kinds = {"uint8_t": 1, "int8_t": 1, "float": 4, "double": 8}
    for weights, activation in product(KINDS, ("relu", "int8")):
        text = export.to_c(make(4, TWO, activation=activation, weights=weights))
        arrays = re.findall(r"^static const (\w+) \w+\[(\d+)\] = ", text, re.MULTILINE)
        size = sum(kinds[kind] * int(num) for kind, num in arrays)
        assert f"Constants: {size} bytes." in text
    assert "Constants: 84 bytes." in export.to_c(
        make(4, TWO, activation="binary", weights="binary")
    )


def test_only_what_needs_it_includes_the_mathematics_library():
    assert "math.h" not in export.to_c(make(4, TWO, activation="binary", weights="binary"))
    assert "math.h" in export.to_c(make(4, TWO, activation="tanh"))


def test_two_policies_fit_one_program(tmp_path):
    left, right = make(4, TWO, weights="binary"), make(4, TWO, weights="binary", seed=1)
    names = [
        set(re.findall(r"static .*?(\w+)[\[(]", export.to_c(*one)))
        for one in ((left, "left"), (right, "right"))
    ]
    assert names[0]
    assert not names[0] & names[1]


class Own(Policy):
    def forward(self, observations):
        return super().forward(observations) ** 2


@pytest.mark.parametrize("name", ["", "2nd", "a-b", "a b", "é", "a\n", None])
def test_a_name_that_c_does_not_know_is_refused(name):
    with pytest.raises(ConfigError, match="name must be letters"):
        export.to_c(make(4, TWO), name)


def test_what_cannot_be_exported_is_refused():
    with pytest.raises(ConfigError, match=r"takes a Policy, such as agent\.policy"):
        export.to_c(torch.nn.Linear(4, 2))
    with pytest.raises(ConfigError, match="Own computes in its own way"):
        export.to_c(Own(4, TWO))
    odd = make(4, TWO)
    odd.activation = "sine"
    with pytest.raises(ConfigError, match="relu, tanh, binary, int8, not 'sine'"):
        export.to_c(odd)
    odd = make(4, TWO)
    odd.space = "left or right"
    with pytest.raises(ConfigError, match="no actions in 'left or right'"):
        export.to_c(odd)
    broken = make(4, TWO)
    broken.layers[1].bias.data[0] = float("nan")
    with pytest.raises(ConfigError, match=r"layers\.1\.bias .* not finite"):
        export.to_c(broken)


def test_a_place_that_takes_no_file_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError, match="cannot be written"):
        export.write(tmp_path / "file" / "policy.h", make(4, TWO))
