"""Binding: the product with directions, where inputs are the same in every example."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from hardstep.evaluation.fused import record_tables
from hardstep.evaluation.fused.layouts import (
    CONSTANT_SHARE,
    SEVERAL,
    find_varying,
    lay_out,
    respond,
)
from hardstep.subspaces import LayerWise, RowWise

from .fused_programs import problem
from .test_incremental import check_losses


def table_of(inputs, examples, stride, constant, seed=0):
    generator = torch.Generator().manual_seed(seed)
    table = torch.zeros(inputs, stride, dtype=torch.float64)
    table[:, :examples] = torch.randn(inputs, examples, generator=generator, dtype=torch.float64)
    table[constant, :examples] = table[constant, :1]
    return table


def responses(table, examples, directions):
    inputs = find_varying(table, examples)
    out = torch.full((len(directions), examples), torch.nan, dtype=table.dtype)
    respond(directions, inputs, out, directions.new_empty(len(directions), inputs.copied))
    return out, inputs


@settings(deadline=None, derandomize=True)
@given(
    examples=st.integers(1, 70),
    units=st.integers(1, 70),
    larger=st.booleans(),
    double=st.booleans(),
    shuffled=st.booleans(),
)
def test_tables_have_examples_last_and_zeros_behind_them(examples, units, larger, double, shuffled):
    examples += larger * -(-SEVERAL // units)
    dtype = torch.float64 if double else torch.float32
    value = torch.randn(examples, units, generator=torch.Generator().manual_seed(units)).to(dtype)
    value[:, 0] = torch.nan
    order = torch.arange(examples).flip(0) if shuffled else None
    stride = (-(-examples // 16) | 1) * 16
    table = lay_out(value, order, stride)
    assert table.shape == (units, stride)
    assert table.dtype == dtype
    wanted = value.flip(0) if shuffled else value
    torch.testing.assert_close(table[:, :examples], wanted.T, rtol=0, atol=0, equal_nan=True)
    assert not table[:, examples:].any()


@settings(deadline=None, derandomize=True)
@given(
    examples=st.integers(1, 70),
    numbers=st.lists(st.sampled_from([0.0, -0.0, 1.0, math.nan, math.inf]), min_size=2, max_size=2),
    place=st.integers(0, 69),
    double=st.booleans(),
)
def test_a_row_varies_if_a_number_differs_from_the_first(examples, numbers, place, double):
    dtype = torch.float64 if double else torch.float32
    table = torch.full((2, 96), 7.0, dtype=dtype)
    table[:, :examples] = numbers[0]
    table[1, place] = numbers[1]
    varies = [bool((row != row[0]).any()) for row in table[:, :examples]]
    found = find_varying(table, examples).varying
    assert (None if found is None else found.chosen.tolist()) == (
        None if all(varies) else [row for row in (0, 1) if varies[row]]
    )


@settings(deadline=None, derandomize=True)
@given(
    inputs=st.integers(1, 40),
    examples=st.integers(1, 9),
    share=st.floats(0, 1),
    seed=st.integers(0, 9),
)
def test_responses_are_the_product_with_all_inputs(inputs, examples, share, seed):
    constant = torch.arange(inputs) < round(share * inputs)
    table = table_of(inputs, examples, examples + 3, constant, seed)
    directions = torch.randn(
        5, inputs, generator=torch.Generator().manual_seed(seed), dtype=torch.float64
    )
    found, _ = responses(table, examples, directions)
    torch.testing.assert_close(found, directions @ table[:, :examples], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(("constant", "copied"), [(0, 0), (9, 0), (10, 71), (80, 1)])
def test_constant_inputs_are_left_out_when_there_are_enough_of_them(constant, copied):
    table = table_of(80, 6, 8, torch.arange(80) < constant)
    assert find_varying(table, 6).copied == copied
    assert CONSTANT_SHARE == 8


def test_numbers_that_are_not_finite_stay_where_they_are():
    table = table_of(16, 4, 4, torch.arange(16) < 8)
    table[3, 2] = torch.nan
    table[12] = torch.inf
    found, inputs = responses(table, 4, torch.ones(2, 16, dtype=torch.float64))
    assert inputs.copied
    assert found.isfinite().tolist() == [[False] * 4] * 2
    table[12] = 0
    found, _ = responses(table, 4, torch.ones(2, 16, dtype=torch.float64))
    assert found.isnan().tolist() == [[False, False, True, False]] * 2


@pytest.mark.parametrize(
    ("name", "subspace", "dtype"),
    [("recurrence", RowWise(2), torch.float64), ("deep-relu", RowWise(2), torch.float32),
     ("deep-relu", LayerWise(1), torch.float64), ("keyed", RowWise(2), torch.float64),
     ("gated", LayerWise(1), torch.float32)],
)  # fmt: skip
def test_losses_of_batches_with_constant_inputs_are_those_of_plain_passes(
    name, subspace, dtype, monkeypatch
):
    given = problem(name, dtype)
    given.inputs[:, ::2] = given.inputs[:1, ::2]
    seen = []

    def watched(table, num_examples):
        seen.append(find_varying(table, num_examples))
        return seen[-1]

    monkeypatch.setattr(record_tables, "find_varying", watched)
    check_losses(given, name, subspace, dtype)
    assert any(inputs.varying is not None for inputs in seen)
