import pytest
import torch
from torch import nn

from hardstep.errors import ConfigError
from hardstep.subspaces import Layout, trainable

from .catalogue import MODELS, Tied, made, tensors_of


def test_a_tied_parameter_is_searched_once():
    tensors = trainable(Tied())
    assert list(tensors) == ["encoder.weight", "encoder.bias"]


def test_frozen_parameters_and_buffers_are_not_searched():
    assert list(tensors_of("frozen")) == ["0.weight", "0.bias", "2.weight"]
    assert list(tensors_of("norms")) == [
        *("0.weight", "0.bias", "1.weight", "1.bias", "2.weight", "2.bias")
    ]


def test_searched_tensors_are_the_models_own():
    model = nn.Linear(3, 2)
    assert trainable(model)["weight"] is model.weight
    tensor = torch.zeros(3)
    assert trainable({"x": tensor})["x"] is tensor


@pytest.mark.parametrize(
    "model", [nn.ReLU(), nn.Linear(2, 2).requires_grad_(False)], ids=["none", "frozen"]
)
def test_a_model_without_trainable_parameters_is_refused_with_a_way_out(model):
    with pytest.raises(ConfigError, match=r"has no trainable parameters; set requires_grad=True"):
        trainable(model)


@pytest.mark.parametrize(
    ("tensors", "seen"),
    [
        ({"x": torch.zeros(3, dtype=torch.int64)}, r"'x': 'int64\(3,\)'"),
        ({"x": torch.zeros(3), "flag": torch.zeros(2, dtype=torch.bool)}, "'flag': 'bool"),
        ({"z": torch.zeros(2, dtype=torch.complex64)}, "'z': 'complex64"),
        ({"x": torch.zeros(0)}, r"float32\(0,\)"),
        ({"x": [1.0, 2.0]}, "'x': 'list'"),
        ({}, "{}"),
    ],
    ids=["integer", "bool", "complex", "empty", "no tensor", "nothing"],
)
def test_tensors_without_real_numbers_are_refused_by_name(tensors, seen):
    with pytest.raises(ConfigError, match=f"needs non-empty floating-point tensors, got .*{seen}"):
        trainable(tensors)


def test_a_model_with_complex_parameters_is_refused():
    with pytest.raises(ConfigError, match="'weight': 'complex64"):
        trainable(nn.Linear(2, 2, dtype=torch.complex64))


@pytest.mark.parametrize(
    ("model", "pairs"),
    [
        ("linear", {"0.weight": "0.bias", "2.weight": "2.bias"}),
        ("bias-free", {}),
        ("conv3d", {"weight": "bias"}),
        ("embedding", {"1.weight": "1.bias"}),
        ("norms", {"0.weight": "0.bias"}),
        ("lstm", {"weight_ih_l0": "bias_ih_l0", "weight_hh_l0": "bias_hh_l0"}),
        ("attention", {"in_proj_weight": "in_proj_bias", "out_proj.weight": "out_proj.bias"}),
        ("bare", {}),
        ("frozen", {"0.weight": "0.bias"}),
    ],
)
def test_a_bias_belongs_to_the_weight_of_its_name(model, pairs):
    assert Layout(tensors_of(model)).bias_of == pairs


def test_a_vector_of_another_length_is_no_bias():
    # The bias of a transposed convolution belongs to columns of its weight, not rows.
    assert Layout(trainable(nn.ConvTranspose1d(3, 5, 2))).bias_of == {}


def test_a_weight_is_read_as_output_units_times_the_rest():
    specs = Layout(tensors_of("bare")).specs
    assert (specs["cube"].rows, specs["cube"].columns, specs["cube"].numel) == (3, 8, 24)
    assert (specs["transposed"].rows, specs["transposed"].columns) == (6, 4)
    assert [spec.is_matrix for spec in specs.values()] == [False, False, True, True]
    assert specs["scale"].numel == 1


def test_a_layout_counts_all_searched_numbers():
    for model, make in MODELS.items():
        expected = sum(p.numel() for p in made(make).parameters() if p.requires_grad)
        assert Layout(tensors_of(model)).num_parameters == expected, model


def test_coordinates_are_kept_in_float32_at_least_and_else_in_the_widest():
    half, single, double = (
        torch.zeros(2, dtype=d) for d in (torch.half, torch.float, torch.double)
    )
    assert Layout({"a": half}).dtype == torch.float32
    assert Layout({"a": half, "b": half.bfloat16()}).dtype == torch.float32
    assert Layout({"a": single, "b": double}).dtype == torch.float64
