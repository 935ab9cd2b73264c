"""Compiling kernels with LLVM, keeping them in memory and on disk, and calling them.

A kernel is known by its text: nothing about a step (weights, number of examples) is in it, so the
same model compiles once, and the next process finds the object code again.
"""

import ctypes
from collections.abc import Callable
from functools import cache

import llvmlite
import llvmlite.binding as llvm
import numpy as np
from torch import Tensor

from hardstep._cache import keep_code, read_code
from hardstep._threads import share_out

_ARGUMENTS = (ctypes.c_void_p, *[ctypes.c_int64] * 4, ctypes.c_void_p)
Function = Callable[..., None]


@cache
def _machine() -> llvm.TargetMachine:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    target = llvm.Target.from_default_triple()
    features = llvm.get_host_cpu_features().flatten()
    return target.create_target_machine(
        cpu=llvm.get_host_cpu_name(), features=features, opt=2, jit=True
    )


@cache
def compile_kernel(text: str) -> Function:
    """The machine code of a kernel's text."""
    machine = _machine()
    module = llvm.parse_assembly(text)
    module.verify()
    engine = llvm.create_mcjit_compiler(module, machine)
    key = _describe(text)
    known = read_code(key)
    if known is None:
        options = llvm.create_pipeline_tuning_options(speed_level=2)
        options.loop_vectorization = options.slp_vectorization = False  # vectors are explicit
        builder = llvm.create_pass_builder(machine, options)
        builder.getModulePassManager().run(module, builder)
    engine.set_object_cache(lambda _, code: keep_code(key, code), lambda _: known)
    engine.finalize_object()
    function = ctypes.CFUNCTYPE(None, *_ARGUMENTS)(engine.get_function_address("run"))
    _ENGINES.append(engine)  # the code lives as long as its engine
    return function


_ENGINES: list[llvm.ExecutionEngine] = []


def _describe(text: str) -> str:
    """What a kernel's code is kept under: it is for this LLVM and this processor."""
    features = llvm.get_host_cpu_features().flatten()
    return f"{llvmlite.__version__} {llvm.get_host_cpu_name()} {features}\n{text}"


def run_kernel(
    text: str,
    tables: list[Tensor],
    num: int,
    examples: int,
    stride: int,
    scratch: int,
    start: int = 0,
) -> None:
    """Run a kernel over candidates start..num, shared among torch's threads."""
    function = compile_kernel(text)
    addresses = np.array([table.data_ptr() for table in tables], dtype=np.uint64)

    def run(first: int, last: int) -> None:
        room = np.empty(scratch + 64, dtype=np.uint8)
        place = -(-room.ctypes.data // 64) * 64
        function(addresses.ctypes.data, start + first, start + last, examples, stride, place)

    if start < num:  # the loops of a kernel have at least one turn
        share_out(num - start, run)
