"""Ranks of `torchrun`: every one runs the same script, and losses are all that they exchange.

    peers = hardstep.distributed.Peers()
    opt = hardstep.PolyStep(model, evaluator=peers, seed=0)

Each evaluates its share of a step's candidates; one `all_gather` gives all of them all losses, and
each takes the same step. No weights travel. A digest of what a step asks about goes along, so ranks
that have drifted apart stop instead of going on with each other's losses.
"""

import hashlib
import os
import sys
import time
from datetime import timedelta
from functools import cache
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch import distributed as dist

from hardstep import __version__
from hardstep._checks import check_positive
from hardstep._text import to_sentence
from hardstep._torch import tree_leaves
from hardstep.distributed.counts import Counts
from hardstep.distributed.jobs import make_job
from hardstep.distributed.shares import Answer, Bounds, Shares, join_rows
from hardstep.errors import ConfigError, WorkerError
from hardstep.evaluation import (
    Candidates,
    Evaluator,
    Explanation,
    Incremental,
    ModelObjective,
    Objective,
    Problem,
    own_evaluator,
)
from hardstep.evaluation.blocks import ON_RECORD
from hardstep.evaluation.opened import RECORD
from hardstep.evaluation.sharing import Opened, Unfit, follow, share

FINE, FAILED, UNFIT = range(3)
_TIERS = (*ON_RECORD, RECORD)  # what candidates may not fit
LOOPBACK = ("localhost", "127.0.0.1", "::1")
NEEDED = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")


def is_under_torchrun() -> bool:
    """Whether this process was started as one of several ranks."""
    return all(name in os.environ for name in NEEDED)


class _Header(NamedTuple):
    """What a rank says before its rows."""

    status: int
    width: int  # numbers in a row; 0 if it is one number
    block: int  # of candidates that do not fit
    tier: int
    low: int  # halves of the digest of what was asked
    high: int


class Peers:
    """The ranks of one `torchrun`, as an evaluator.

    Args:
        timeout: Seconds after which a rank that does not answer is taken for gone.
        evaluator: How a rank computes losses of a model; the one that the model brings along, or
            `Incremental()`, if left out.

    Raises:
        WorkerError: This is no rank of `torchrun`, or the others are not there or are unlike it.
    """

    def __init__(self, timeout: float = 60.0, evaluator: Evaluator | None = None) -> None:
        check_positive("Peers: timeout", timeout)
        missing = [name for name in NEEDED if name not in os.environ]
        if missing:
            raise WorkerError(
                f"Peers: {missing[0]} is not set, so this is no rank of torchrun; start it with "
                "torchrun --nproc-per-node 4 script.py"
            )
        self.counts = Counts()
        self._evaluator = evaluator
        self._usual: Evaluator = Incremental()
        self._timeout = timeout
        self._step = 0
        self._join()
        self._shares = Shares(self.workers)

    def _join(self) -> None:
        backend = "nccl" if torch.cuda.is_available() else "gloo"
        if os.environ["MASTER_ADDR"] in LOOPBACK and sys.platform == "linux":
            os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")  # else the host's name decides
        if not dist.is_initialized():
            try:
                dist.init_process_group(backend, timeout=timedelta(seconds=self._timeout))
            except (RuntimeError, ValueError) as error:
                place = f"{os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}"
                raise WorkerError(
                    f"rank {os.environ['RANK']} of {os.environ['WORLD_SIZE']} found no other at "
                    f"{place} within {self._timeout:g} s ({_shorten(error)}); start all ranks, "
                    "with the same address and world size"
                ) from error
        self.rank, self.workers = dist.get_rank(), dist.get_world_size()
        on_cuda = dist.get_backend() == "nccl"
        self._device = torch.device("cuda", torch.cuda.current_device()) if on_cuda else "cpu"
        try:
            self._compare("hardstep", __version__)
            self._compare("torch", torch.__version__)
            self._compare("threads", str(torch.get_num_threads()))
        except WorkerError:
            self.close()  # gloo's threads abort a process that ends beside them
            raise

    def _compare(self, what: str, own: str) -> None:
        """Refuse ranks that would not find the same bits."""
        told = torch.zeros(64, dtype=torch.uint8)
        told[: len(own)] = torch.tensor(list(own.encode()), dtype=torch.uint8)
        found = [bytes(one.tolist()).rstrip(b"\0").decode() for one in self._gather(told)]
        for rank, other in enumerate(found):
            if other != found[0]:
                raise WorkerError(
                    f"rank 0 has {what} {found[0]} and rank {rank} has {other}; start all ranks "
                    "with the same",
                    told_by_all=True,
                )

    @property
    def leads(self) -> bool:
        """Whether this rank writes progress, checkpoints and results."""
        return self.rank == 0

    @property
    def path(self) -> str:
        """A few words for a progress bar."""
        return f"{self.workers} ranks, waiting {self.counts.waiting:.0%}"

    def losses(self, candidates: Candidates, problem: Problem) -> Tensor:
        """One loss per candidate, (N,)."""
        inner = self._evaluator or own_evaluator(problem.model) or self._usual
        return self.collect(ModelObjective(problem, inner), candidates)

    def explain(self, candidates: Candidates, problem: Problem) -> Explanation:
        """How a rank evaluates a step, and how the step divides."""
        inner = self._evaluator or own_evaluator(problem.model) or self._usual
        explain = getattr(inner, "explain", None)
        if explain is None:
            raise ConfigError(f"explain needs an evaluator with a method explain, got {inner!r}")
        found: Explanation = explain(candidates, problem)
        return found.divided(self.workers, 8 * len(candidates))

    def spread(self, objective: Objective) -> "_Shared":
        """The same objective, evaluated by all ranks."""
        return _Shared(self, objective)

    def close(self) -> None:
        """Leave the others."""
        if dist.is_initialized():
            dist.destroy_process_group()

    def collect(self, objective: Objective, candidates: Candidates) -> Tensor:
        """The losses of all candidates, on every rank."""
        divisible = share(objective)
        self._step += 1
        asked = _digest_step(objective, candidates)
        opened: Opened | None = None
        fault: Exception | None = None
        try:
            with torch.no_grad():
                opened = divisible.open(candidates)
        except Exception as error:  # the others must hear of it
            fault = error

        def answer(question: Any) -> Tensor:
            return self._answer(opened, fault, question, len(candidates), asked)

        return follow(divisible.ask(candidates), answer)

    def _answer(
        self, opened: Opened | None, fault: Exception | None, question: Any, num: int, asked: bytes
    ) -> Tensor:
        """Rows of all candidates: this rank's share of them, and those of the others."""
        began = time.perf_counter()
        shares = self._shares.plan(num)
        halves = [int.from_bytes(asked[i : i + 8], "little", signed=True) for i in (0, 8)]
        header, own = _Header(FINE, 0, 0, 0, *halves), list[Answer]()
        try:
            if fault is None and opened is not None:
                own = _answer_ranges(opened, question, shares[self.rank])
                header = header._replace(width=max((_width(one.rows) for one in own), default=0))
        except Unfit as unfit:
            header = header._replace(status=UNFIT, block=unfit.block, tier=_TIERS.index(unfit.tier))
        except Exception as error:
            fault = error
        if fault is not None:
            header, own = header._replace(status=FAILED), []
        self.counts.busy += time.perf_counter() - began
        found = self._exchange(header, own, fault, most=max(map(len, shares)))
        self.counts.available += time.perf_counter() - began
        self.counts.tiles += self.workers
        self._shares.note(num, found)
        return join_rows(found, num)

    def _exchange(
        self, header: _Header, own: list[Answer], fault: Exception | None, most: int
    ) -> list[Answer]:
        """What all ranks answered, in the order of candidates; `most` ranges of a rank."""
        told = torch.zeros(len(header) + 3 * most, dtype=torch.int64)
        told[: len(header)] = torch.tensor(header)
        listed = torch.tensor([(one.start, len(one.rows), one.micros) for one in own])
        told[len(header) : len(header) + listed.numel()] = listed.flatten()
        heard = self._gather(told)
        headers = [_Header(*one[: len(header)].tolist()) for one in heard]
        self._check(headers, fault)
        ranges = [one[len(header) :].reshape(most, 3).tolist() for one in heard]
        widths = [max(1, one.width) for one in headers]
        sizes = [w * sum(num for _, num, _ in own) for w, own in zip(widths, ranges, strict=True)]
        padded = torch.zeros(max(sizes), dtype=torch.float64)
        padded[: sizes[self.rank]] = torch.cat([torch.empty(0), *(a.rows.flatten() for a in own)])
        found: list[Answer] = []
        for one, listing, numbers in zip(headers, ranges, self._gather(padded), strict=True):
            found += _read_ranges(one, listing, numbers)
        nbytes = told.nbytes + padded.nbytes
        self.counts.bytes_sent += nbytes
        self.counts.bytes_received += nbytes * (self.workers - 1)
        return sorted(found, key=lambda one: one.start)

    def _check(self, headers: list[_Header], fault: Exception | None) -> None:
        """Stop where a rank failed or is elsewhere; ask again where a tier does not fit.

        Raises:
            WorkerError: On all ranks, or the exception itself where it happened.
            Unfit: On all ranks.
        """
        for rank, one in enumerate(headers):
            if (one.low, one.high) != (headers[0].low, headers[0].high):
                raise WorkerError(
                    f"at question {self._step}, rank {rank} asks about other parameters, batches "
                    "or settings than rank 0; start all ranks with the same seed, data and "
                    "settings",
                    told_by_all=True,
                )
        if fault is not None:
            raise fault
        for rank, one in enumerate(headers):
            if one.status == FAILED:
                raise WorkerError(f"rank {rank} failed at question {self._step}; see its own error")
            if one.status == UNFIT:
                raise Unfit(one.block, _TIERS[one.tier], f"a candidate of rank {rank} does not fit")

    def _gather(self, own: Tensor) -> list[Tensor]:
        """The same tensor of every rank."""
        here = own.to(self._device)
        found = [torch.empty_like(here) for _ in range(self.workers)]
        try:
            dist.all_gather(found, here)
        except RuntimeError as error:
            raise WorkerError(
                f"rank {self.rank} of {self.workers} has lost another one, or waited for it for "
                f"{self._timeout:g} s ({_shorten(error)}); start all ranks again, and resume"
            ) from error
        return [one.cpu() for one in found]


class _Shared:
    def __init__(self, peers: Peers, objective: Objective) -> None:
        self._peers, self._objective = peers, objective

    def losses(self, candidates: Candidates) -> Tensor:
        """One loss per candidate, (N,)."""
        return self._peers.collect(self._objective, candidates)


def _digest_step(objective: Objective, candidates: Candidates) -> bytes:
    """What tells a step's question from others: parameters, batch, probes and seed."""
    job, asked = make_job(objective, candidates)
    known = hashlib.blake2b(str(asked.seed).encode(), digest_size=16)
    tensors = [*job.base.values(), asked.asked, asked.offsets, *tree_leaves(asked.batch)]
    if isinstance(objective, ModelObjective):
        tensors += objective.problem.model.buffers()
    for tensor in tensors:
        if isinstance(tensor, Tensor):
            known.update(_sum_up(tensor))
    return known.digest()


def _sum_up(tensor: Tensor) -> bytes:
    """What tells a tensor from one that another rank has by mistake; faster than a digest."""
    plain = tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8)
    whole = len(plain) // 8 * 8
    words = plain[:whole].view(torch.int64)
    total = int((words * _odd_numbers(len(words))).sum())
    rest = plain[whole:].numpy().tobytes()
    return f"{tensor.dtype}{tuple(tensor.shape)} {total} ".encode() + rest


@cache
def _odd_numbers(num: int) -> Tensor:
    """Factors modulo 2⁶⁴, so that words which change places change the sum."""
    return (2 * torch.arange(num) + 1) * 0x1E3779B97F4A7C15


def _answer_ranges(opened: Opened, question: Any, ranges: list[Bounds]) -> list[Answer]:
    """Those of some ranges in which a tile begins."""
    found: list[Answer] = []
    for start, stop in ranges:
        began = time.perf_counter()
        with torch.no_grad():
            first, rows = opened.piece(question, start, stop)
        micros = round(1e6 * (time.perf_counter() - began))
        if len(rows):
            found.append(Answer(first, rows.detach().double().cpu(), micros))
    return found


def _width(rows: Tensor) -> int:
    return rows.shape[1] if rows.dim() > 1 else 0


def _read_ranges(header: _Header, ranges: list[list[int]], numbers: Tensor) -> list[Answer]:
    """A rank's answers, from what it told about them and their numbers."""
    found, place = [], 0
    for start, num, micros in ranges:
        if num:
            rows = numbers[place : place + num * max(1, header.width)]
            place += len(rows)
            shape = (num, header.width) if header.width else (num,)
            found.append(Answer(start, rows.reshape(shape), micros))
    return found


def _shorten(error: BaseException) -> str:
    """What happened; torch goes on about C++."""
    first = str(error).strip().splitlines()[0] if str(error).strip() else ""
    return to_sentence(f"{type(error).__name__}: {first}")[:160]
