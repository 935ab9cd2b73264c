import weakref

import numpy as np
import pytest
import torch
from torch import nn
from torch.func import functional_call

from hardstep.errors import ConfigError
from hardstep.nn import LIF, SmoothLIF, SpikingMLP, SpikingNet, SpikingVGG11Small, build


def simulate(current: np.ndarray, num_steps: int, decay: float, threshold: float) -> np.ndarray:
    """Spikes (num_steps, ...) of one neuron per entry under a constant current."""
    membrane = np.zeros_like(current)
    train = np.zeros((num_steps, *current.shape))
    for step in range(num_steps):
        for index in np.ndindex(current.shape):
            membrane[index] = decay * membrane[index] + current[index]
            if membrane[index] >= threshold:
                train[step][index] = 1.0
                membrane[index] = 0.0
    return train


@pytest.mark.parametrize(("decay", "threshold"), [(0.95, 1.0), (0.5, 0.7), (1.0, 2.0), (0.0, 0.1)])
def test_spike_times_under_constant_current_match_a_scalar_loop(decay, threshold):
    current = np.linspace(-0.5, 1.5, 24).reshape(2, 3, 4) + 1e-3
    lif = LIF(decay, threshold)
    drive, membrane, train = torch.from_numpy(current), None, []
    for _ in range(20):
        spikes, membrane = lif(drive, membrane)
        train.append(spikes.numpy())
    np.testing.assert_array_equal(np.stack(train), simulate(current, 20, decay, threshold))


def test_constant_current_fires_at_the_closed_form_period():
    # m after k steps from rest is I (1 - decay^k) / (1 - decay)
    decay, current = 0.95, 0.2
    period = int(np.ceil(np.log(1.0 - (1.0 - decay) / current) / np.log(decay)))
    lif, membrane, fired = LIF(decay), None, []
    for step in range(1, 4 * period + 1):
        spike, membrane = lif(torch.tensor([current], dtype=torch.float64), membrane)
        fired += [step] if spike.item() else []
    assert fired == [period, 2 * period, 3 * period, 4 * period]


def test_a_membrane_exactly_at_the_threshold_fires_and_resets():
    spikes, membrane = LIF()(torch.tensor([0.5, 0.25]), torch.tensor([0.0, 0.0]))
    assert spikes.tolist() == [0.0, 0.0]
    spikes, membrane = LIF(decay=1.0)(torch.tensor([0.5, 0.25]), membrane)
    assert spikes.tolist() == [1.0, 0.0]
    assert membrane.tolist() == [0.0, 0.5]


def test_no_membrane_is_the_same_as_a_membrane_of_zeros():
    current = torch.linspace(-2.0, 2.0, 9)
    for neuron in (LIF(), SmoothLIF()):
        for rest, zero in zip(
            neuron(current), neuron(current, torch.zeros_like(current)), strict=True
        ):
            torch.testing.assert_close(rest, zero, rtol=0.0, atol=0.0)


def test_counts_match_a_scalar_simulation_of_every_layer():
    net = build(lambda: SpikingMLP((5, 7, 3), num_steps=12), 0).double()
    inputs = torch.randn(4, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    inputs = 3.0 * inputs
    (w1, b1), (w2, b2) = [
        (stage.weight.detach().numpy(), stage.bias.detach().numpy()) for stage in net.stages
    ]
    hidden = simulate(inputs.numpy() @ w1.T + b1, 12, 0.95, 1.0)
    membrane, counts = np.zeros((4, 3)), np.zeros((4, 3))
    for spikes in hidden:
        membrane = 0.95 * membrane + spikes @ w2.T + b2
        fired = membrane >= 1.0
        counts += fired
        membrane = np.where(fired, 0.0, membrane)
    assert hidden.sum() > 0
    assert counts.sum() > 0
    np.testing.assert_array_equal(net(inputs).numpy(), counts)


def test_spike_trains_are_binary_and_sum_to_the_counts():
    net = build(lambda: SpikingMLP((6, 8, 4), num_steps=9), 3)
    inputs = 4.0 * torch.randn(5, 6, generator=torch.Generator().manual_seed(0))
    hidden, output = net.spike_trains(inputs)
    assert hidden.shape == (9, 5, 8)
    assert output.shape == (9, 5, 4)
    assert set(hidden.unique().tolist()) == {0.0, 1.0}
    torch.testing.assert_close(output.sum(dim=0), net(inputs), rtol=0.0, atol=0.0)


def test_counts_lie_between_zero_and_the_number_of_steps():
    drive = nn.Linear(1, 3, bias=False)
    nn.init.constant_(drive.weight, 1.0)
    net = SpikingNet([drive], num_steps=6)
    counts = net(torch.tensor([[-1.0], [0.0], [1.0], [50.0]]))
    assert counts[:, 0].tolist() == [0.0, 0.0, 6.0, 6.0]


def test_two_calls_give_the_same_counts():
    net = build(lambda: SpikingMLP((6, 8, 4)), 1)
    first, second = torch.randn(2, 3, 6, generator=torch.Generator().manual_seed(2))
    alone = net(first)
    net(second)
    net.spike_trains(second)
    torch.testing.assert_close(net(first), alone, rtol=0.0, atol=0.0)
    assert not list(net.buffers())


def test_the_first_layer_is_computed_once_per_call():
    net, calls = SpikingMLP((6, 8, 4), num_steps=7), []
    for index, stage in enumerate(net.stages):
        stage.register_forward_hook(lambda *_, index=index: calls.append(index))
    net(torch.zeros(2, 6))
    assert sorted(calls) == [0] + 7 * [1]


def test_smooth_counts_approach_the_hard_counts_as_the_slope_grows():
    hard = build(lambda: SpikingMLP((6, 8, 4), num_steps=8), 4).double()
    inputs = 4.0 * torch.randn(
        16, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(0)
    )
    gaps = []
    for slope in (1.0, 1e2, 1e4, 1e8):
        twin = SpikingMLP((6, 8, 4), num_steps=8, lif=SmoothLIF(slope=slope)).double()
        twin.load_state_dict(hard.state_dict())
        gaps.append((twin(inputs) - hard(inputs)).abs().max().item())
    assert hard(inputs).sum() > 0
    assert gaps[-1] < 1e-6
    assert gaps[-1] < gaps[0]


def test_gradients_reach_every_weight_of_the_smooth_network_and_none_of_the_hard_one():
    inputs = torch.randn(4, 6, generator=torch.Generator().manual_seed(0))
    twin = build(lambda: SpikingMLP((6, 8, 4), lif=SmoothLIF()), 0)
    twin(inputs).square().sum().backward()
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in twin.parameters())
    assert not build(lambda: SpikingMLP((6, 8, 4)), 0)(inputs).requires_grad


def test_spikes_keep_the_precision_of_the_current():
    for dtype in (torch.float32, torch.float64, torch.bfloat16):
        spikes, membrane = LIF()(torch.ones(2, dtype=dtype))
        assert spikes.dtype == membrane.dtype == dtype


def test_the_small_vgg_has_eleven_weight_layers_and_2_4_million_parameters():
    net = SpikingVGG11Small(num_steps=2)
    assert sum(p.numel() for p in net.parameters()) == 2_440_394
    assert sum(p.dim() > 1 for p in net.parameters()) == 11
    with torch.no_grad():
        assert net(torch.randn(1, 3, 32, 32)).shape == (1, 10)


def test_the_small_vgg_drops_the_activations_of_a_step_before_the_next_is_over():
    net = SpikingVGG11Small(num_steps=6)
    num_layers, seen, most_alive = len(net.stages), [], 0

    def watch(module, arguments, output):
        nonlocal most_alive
        seen.append(weakref.ref(output[0]))
        most_alive = max(most_alive, sum(ref() is not None for ref in seen))

    net.lif.register_forward_hook(watch)
    with torch.no_grad():
        net(torch.randn(1, 3, 32, 32))
    assert len(seen) == 6 * num_layers
    assert most_alive <= 3  # this layer's, the layer's before, the last step's output


def test_the_small_vgg_is_the_same_under_vmap():
    # Weights of torch's size leave the deep layers silent; three times that lets them fire.
    net = build(lambda: SpikingVGG11Small(num_steps=4), 0).double()
    shifted = {k: torch.stack([3.0 * v, 4.0 * v]).detach() for k, v in net.named_parameters()}
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(1, 3, 32, 32, dtype=torch.float64, generator=generator)
    with torch.no_grad():
        together = torch.func.vmap(lambda p: functional_call(net, p, (inputs,)))(shifted)
        assert together.sum(dim=(1, 2)).min() > 0
        for index in range(2):
            alone = functional_call(net, {k: v[index] for k, v in shifted.items()}, (inputs,))
            torch.testing.assert_close(together[index], alone, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: LIF(decay=1.5), r"LIF: decay must lie in \[0, 1\], got 1.5"),
        (lambda: SmoothLIF(slope=0.0), "SmoothLIF: slope must be > 0, got 0.0"),
        (
            lambda: SpikingMLP((4, 2), num_steps=0),
            "SpikingMLP: num_steps must be a whole",
        ),
        (lambda: SpikingMLP((4,)), r"SpikingMLP: sizes needs inputs and outputs, got \(4,\)"),
        (lambda: SpikingNet([]), "SpikingNet: stages is empty"),
    ],
)
def test_impossible_settings_are_refused_by_name(make, message):
    with pytest.raises(ConfigError, match=message):
        make()


def test_printing_a_neuron_shows_its_constants():
    assert repr(LIF()) == "LIF(decay=0.95, threshold=1.0)"
    assert repr(SmoothLIF(slope=2.0)) == "SmoothLIF(decay=0.95, threshold=1.0, slope=2.0)"
