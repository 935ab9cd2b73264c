"""What kernels ask about the processor they run on."""

from collections.abc import Mapping
from functools import cache

import llvmlite.binding as llvm

VECTOR_BYTES = 64  # of 16 singles or 8 doubles, in one register or several
MOST_SUMS = 12  # more gain nothing


@cache
def features() -> Mapping[str, bool]:
    """Its extensions by LLVM's names."""
    return dict(llvm.get_host_cpu_features())


def sums_in_registers(features: Mapping[str, bool]) -> int:
    """Vectors of sums that fit its registers beside a vector of changes and a weight."""
    if features.get("avx512f"):
        registers, size = 32, 64
    elif features.get("avx"):
        registers, size = 16, 32
    else:
        registers, size = (32 if features.get("neon") else 16), 16
    each = VECTOR_BYTES // size
    return min(MOST_SUMS, (registers - each - 1) // each)
