"""Directions without the inputs that are left out of their product: one pass over memory.

A row of the result holds the chosen numbers of a direction, and last what the others add up to,
each times its constant. torch does that in three passes on one thread, which at gigabytes of
directions takes a sixth of a step; this is the only kernel whose text is not generated.
"""

from functools import cache

import torch
from torch import Tensor

from hardstep.evaluation.fused.compile import call

_TYPES = {torch.float32: "float", torch.float64: "double"}
_CHAINS = 4  # sums in flight: one addition would wait for the last

# for row in first..last:
#     for k in 0..kept: result[row, k] = directions[row, chosen[k]]
#     result[row, kept] = Σ_k constants[k] · directions[row, others[k]]
_TEXT = """
define void @run(ptr %tables, i64 %first, i64 %last, i64 %a, i64 %b, ptr %scratch) {{
entry:
{loads}
  %inputs = load i64, ptr %t5
  %kept_at = getelementptr i64, ptr %t5, i64 1
  %kept = load i64, ptr %kept_at
  %others_at = getelementptr i64, ptr %t5, i64 2
  %others = load i64, ptr %others_at
  %width = add i64 %kept, 1
  br label %rows
rows:
  %row = phi i64 [ %first, %entry ], [ %row_next, %done ]
  %row_more = icmp slt i64 %row, %last
  br i1 %row_more, label %row_begin, label %exit
row_begin:
  %from_at = mul i64 %row, %inputs
  %from = getelementptr {real}, ptr %t0, i64 %from_at
  %to_at = mul i64 %row, %width
  %to = getelementptr {real}, ptr %t4, i64 %to_at
  br label %copy
copy:
  %k = phi i64 [ 0, %row_begin ], [ %k_next, %copying ]
  %k_more = icmp slt i64 %k, %kept
  br i1 %k_more, label %copying, label %sum
copying:
  %chosen_at = getelementptr i64, ptr %t1, i64 %k
  %chosen = load i64, ptr %chosen_at
  %number_at = getelementptr {real}, ptr %from, i64 %chosen
  %number = load {real}, ptr %number_at
  %place = getelementptr {real}, ptr %to, i64 %k
  store {real} %number, ptr %place
  %k_next = add i64 %k, 1
  br label %copy
sum:
  %j = phi i64 [ 0, %copy ], [ %j_next, %summing ]
{sums}
  %j_more = icmp slt i64 %j, %others
  br i1 %j_more, label %summing, label %done
summing:
{additions}
  %j_next = add i64 %j, {chains}
  br label %sum
done:
{total}
  %last_place = getelementptr {real}, ptr %to, i64 %kept
  store {real} %total{last_sum}, ptr %last_place
  %row_next = add i64 %row, 1
  br label %rows
exit:
  ret void
}}
"""
_ADDITION = """
  %i{n} = add i64 %j, {n}
  %other_at{n} = getelementptr i64, ptr %t2, i64 %i{n}
  %other{n} = load i64, ptr %other_at{n}
  %value_at{n} = getelementptr {real}, ptr %from, i64 %other{n}
  %value{n} = load {real}, ptr %value_at{n}
  %constant_at{n} = getelementptr {real}, ptr %t3, i64 %i{n}
  %constant{n} = load {real}, ptr %constant_at{n}
  %term{n} = fmul {real} %value{n}, %constant{n}
  %sum_next{n} = fadd {real} %sum{n}, %term{n}"""


@cache
def _text(dtype: torch.dtype) -> str:
    real, chains = _TYPES[dtype], range(_CHAINS)
    loads = "\n".join(
        f"  %at{n} = getelementptr ptr, ptr %tables, i64 {n}\n  %t{n} = load ptr, ptr %at{n}"
        for n in range(6)
    )
    sums = "\n".join(
        f"  %sum{n} = phi {real} [ 0.0, %copy ], [ %sum_next{n}, %summing ]" for n in chains
    )
    total = [f"  %total0 = fadd {real} %sum0, 0.0"]
    total += [f"  %total{n} = fadd {real} %total{n - 1}, %sum{n}" for n in chains if n]
    return _TEXT.format(
        real=real,
        loads=loads,
        sums=sums,
        additions="".join(_ADDITION.format(n=n, real=real) for n in chains),
        chains=_CHAINS,
        total="\n".join(total),
        last_sum=_CHAINS - 1,
    )


def padded(others: Tensor, constants: Tensor) -> tuple[Tensor, Tensor]:
    """Both filled up with first inputs times nothing, as the kernel reads several at a time."""
    missing = -len(others) % _CHAINS
    return (
        torch.cat([others, others.new_zeros(missing)]),
        torch.cat([constants, constants.new_zeros(missing)]),
    )


def compact(
    directions: Tensor, chosen: Tensor, others: Tensor, constants: Tensor, result: Tensor
) -> None:
    """Fill `result` (n, chosen + 1) from directions (n, inputs); others as `padded` made them."""
    num, inputs = directions.shape
    sizes = torch.tensor([inputs, len(chosen), len(others)])
    tables = [directions.contiguous(), chosen, others, constants, result, sizes]
    call(_text(directions.dtype), tables, num, 0, 0, 0)
