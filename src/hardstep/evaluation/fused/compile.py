"""Compiling kernels with LLVM, keeping them in memory and on disk, and calling them.

A kernel is known by its text: nothing about a step (weights, number of examples) is in it, so the
same model compiles once, and the next process finds the object code again.
"""

import ctypes
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from functools import cache
from itertools import pairwise
from threading import Barrier

import llvmlite
import llvmlite.binding as llvm
import numpy as np
import torch
from torch import Tensor

from hardstep._cache import keep_code, read_code

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


@cache
def _pool(size: int) -> ThreadPoolExecutor:
    """Threads in which torch takes no more threads.

    Torch also remembers the last number set by any thread, so that ours are started here, all of
    them, and the caller's number is set again.
    """
    pool = ThreadPoolExecutor(size, "hardstep", _stay_alone)
    started = Barrier(size)
    wait([pool.submit(started.wait) for _ in range(size)])
    torch.set_num_threads(size)
    return pool


def _stay_alone() -> None:
    """Let torch use no other threads from this one."""
    torch.get_num_threads()  # a thread that asks for the first time gets the number of all
    torch.set_num_threads(1)


def _forget_threads() -> None:
    """A child that was forked has the pool but none of its threads, and torch's likewise.

    Torch's next loop would wait for them for ever. With a single one it works; the child may ask
    for more, at its own risk.
    """
    if _pool.cache_info().currsize:
        torch.set_num_threads(1)
    _pool.cache_clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_threads)


def run_kernel(
    text: str, tables: list[Tensor], num: int, examples: int, stride: int, scratch: int
) -> None:
    """Run a kernel over candidates 0..num, shared among torch's threads."""
    function = compile_kernel(text)
    addresses = np.array([table.data_ptr() for table in tables], dtype=np.uint64)

    def run(first: int, last: int) -> None:
        room = np.empty(scratch + 64, dtype=np.uint8)
        place = -(-room.ctypes.data // 64) * 64
        function(addresses.ctypes.data, first, last, examples, stride, place)

    share_out(num, run)


def share_out(num: int, run: Callable[[int, int], None], largest_piece: int | None = None) -> None:
    """Call `run(first, last)` for pieces of 0..num, shared among torch's threads.

    Args:
        num: How much there is to do.
        run: Does a piece, without Python's lock for the most part.
        largest_piece: Of one call, so that Ctrl-C is heard between two; one call for each
            thread if left out.
    """
    threads = max(1, min(torch.get_num_threads(), num))
    pieces = threads if largest_piece is None else max(threads, -(-num // largest_piece))
    bounds = [num * n // pieces for n in range(pieces + 1)]
    if threads == 1:
        for first, last in pairwise(bounds):
            run(first, last)
        return
    pool = _pool(torch.get_num_threads())
    started = [pool.submit(run, first, last) for first, last in pairwise(bounds)]
    try:
        for piece in started:
            piece.result()
    except BaseException:
        # Pieces that run now use what the caller frees or changes as soon as it hears of this.
        for piece in started:
            piece.cancel()
        wait(started)
        raise
