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
from hardstep.distributed.tensors import digest
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
    start: int
    num: int
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
        start, stop = (r * num // self.workers for r in (self.rank, self.rank + 1))
        halves = [int.from_bytes(asked[i : i + 8], "little", signed=True) for i in (0, 8)]
        header, rows = _Header(FINE, start, 0, 0, 0, 0, *halves), torch.empty(0)
        try:
            if fault is None and opened is not None:
                with torch.no_grad():
                    first, found = opened.piece(question, start, stop)
                rows = found.detach().double().cpu()
                width = rows.shape[1] if rows.dim() > 1 else 0
                header = header._replace(start=first, num=len(rows), width=width)
        except Unfit as unfit:
            header = header._replace(status=UNFIT, block=unfit.block, tier=_TIERS.index(unfit.tier))
        except Exception as error:
            fault = error
        if fault is not None:
            header = header._replace(status=FAILED)
        self.counts.busy += time.perf_counter() - began
        headers = [_Header(*one.tolist()) for one in self._gather(torch.tensor(header))]
        self._check(headers, fault)
        most = max(one.num * max(1, one.width) for one in headers)
        padded = torch.zeros(most, dtype=torch.float64)
        padded[: rows.numel()] = rows.reshape(-1)
        gathered = self._gather(padded)
        self.counts.available += time.perf_counter() - began
        self.counts.tiles += self.workers
        self.counts.bytes_sent += 8 * (len(header) + most)
        self.counts.bytes_received += 8 * (len(header) + most) * (self.workers - 1)
        return _join_rows(headers, gathered, num)

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
            known.update(digest(tensor))
    return known.digest()


def _join_rows(headers: list[_Header], gathered: list[Tensor], num: int) -> Tensor:
    pieces, place = [], 0
    for rank, (header, rows) in enumerate(zip(headers, gathered, strict=True)):
        if not header.num:
            continue
        if header.start != place:
            raise WorkerError(
                f"rank {rank} answered for candidates from {header.start} on where {place} is "
                "next, so ranks do not cut a step alike; do all have the same torch and processor?",
                told_by_all=True,
            )
        place += header.num
        found = rows[: header.num * max(1, header.width)]
        pieces.append(found.reshape(header.num, header.width) if header.width else found)
    assert place == num
    return torch.cat(pieces)


def _shorten(error: BaseException) -> str:
    """What happened; torch goes on about C++."""
    first = str(error).strip().splitlines()[0] if str(error).strip() else ""
    return to_sentence(f"{type(error).__name__}: {first}")[:160]
