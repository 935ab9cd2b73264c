"""Networks from the layers of snnTorch and SpikingJelly: are losses right, and by which tiers?

    python -m benchmarks.runs.spiking_libraries                 try every network, print the tables
    python -m benchmarks.runs.spiking_libraries --only Alpha    try some of them, record nothing
    python -m benchmarks.runs.spiking_libraries --tables        print the tables of the record

Needs snntorch and spikingjelly (its activation_based part runs without torchvision and torchaudio).
The losses of all probes of one training step are compared with those of forward passes by torch
alone, in float32 and float64. Speed: the processor time of one forward pass × probes ÷ that of the
step's losses, once kernels are compiled, in float32.
"""

import json
import sys
import time
from collections import Counter
from copy import deepcopy
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.functional import cross_entropy

from hardstep._files import provenance, write_text
from hardstep._pages import markdown_table
from hardstep.data import digits
from hardstep.evaluation.candidates import Candidates
from hardstep.nn import build, wake
from hardstep.optim import PolyStep
from hardstep.subspaces import RowWise

RECORD = Path(__file__).parents[1] / "results" / "spiking-libraries.json"
TITLES = {"snntorch": "snnTorch", "spikingjelly": "SpikingJelly"}
BATCH = 32
REPEATS = 3
COMMAND = "OMP_NUM_THREADS=1 python -m benchmarks.runs.spiking_libraries"


def try_network(make: Any) -> dict[str, Any]:
    """What one network gave in both precisions."""
    single, double = (_compare(make, dtype) for dtype in (torch.float32, torch.float64))
    return {
        "probes": single["probes"],
        "altered": single["altered"],  # share of probes whose loss is not the most frequent one
        "difference": {"float32": single["difference"], "float64": double["difference"]},
        "speed": single["speed"],
        "blocks": single["blocks"],
    }


def _compare(make: Any, dtype: torch.dtype) -> dict[str, Any]:
    drawn = digits(0).train.select(torch.arange(2 * BATCH))
    pictures = drawn.inputs.reshape(-1, 1, 8, 8)
    model = build(make, 0)
    wake(model, pictures)  # initial weights leave most of the networks silent
    pictures = pictures.to(dtype)
    try:
        with torch.no_grad():
            model.to(dtype)(pictures[BATCH:])  # an earlier batch, which leaves its state
    except RuntimeError:  # recurrent layers of snnTorch are given its float32 spikes
        return {"difference": None}
    given = pictures[:BATCH], drawn.labels[:BATCH], cross_entropy
    opt = PolyStep(model, subspace=RowWise(rank=1), seed=0)
    proposal = opt.propose()
    losses = opt.evaluate(proposal, *given).flatten()
    expected = _run_plainly(model, opt.candidates(proposal), *given)
    found = {
        "probes": len(losses),
        "altered": round(float((expected != expected.mode().values).double().mean()), 3),
        "difference": float((losses - expected).abs().max()),
    }
    if dtype == torch.float32:
        found |= {"speed": _measure_speed(opt, model, given, len(losses))}
        told = opt.explain(*given).parameters
        found["blocks"] = [{"name": o.name, "tier": o.path, "reason": o.reason} for o in told]
    return found


def _run_plainly(model: nn.Module, candidates: Candidates, inputs: Any, *given: Any) -> Tensor:
    """The losses of torch alone; each forward pass starts from a copy of the neurons' state."""
    target, loss_fn = given
    losses = []
    for number in range(len(candidates)):
        changed = candidates.parameters(number)
        with torch.no_grad():
            losses.append(loss_fn(functional_call(deepcopy(model), changed, inputs), target))
    return torch.stack(losses)


def _measure_speed(opt: PolyStep, model: nn.Module, given: Any, probes: int) -> float:
    """The median of interleaved repeats."""
    inputs, target, loss_fn = given
    ratios = []
    for _ in range(REPEATS):
        with torch.no_grad():
            began = time.process_time()
            for _ in range(REPEATS):
                loss_fn(model(inputs), target)
            forward = (time.process_time() - began) / REPEATS
        began = time.process_time()
        opt.evaluate(opt.propose(), *given)
        ratios.append(forward * probes / (time.process_time() - began))
    return round(sorted(ratios)[REPEATS // 2], 1)


def run(only: str) -> None:
    """Try every network whose name contains some words; all of them are recorded."""
    from benchmarks.runs.spiking_networks import networks  # needs both libraries

    found: dict[str, dict[str, Any]] = {library: {} for library in TITLES}
    for (library, name), make in networks().items():
        if only in name:
            found[library][name] = try_network(make)
            print(TITLES[library], name, json.dumps(found[library][name]), flush=True)
    if not only:
        libraries = {library: version(library) for library in TITLES}
        where = provenance() | {"command": COMMAND, "versions": libraries}
        write_text(RECORD, json.dumps({"networks": found} | where, indent=1) + "\n")


def tables() -> dict[str, str]:
    """A Markdown table per library, with its circumstances, and one of reasons."""
    record = json.loads(RECORD.read_text())
    head = ["network", "tiers", "speed", "altered", "float32", "float64"]
    made = {}
    for library, networks in record["networks"].items():
        rows = [[name, *_cells(found)] for name, found in networks.items()]
        where = f"{TITLES[library]} {record['versions'][library]}, torch {record['torch']}, Python "
        where += f"{record['python']}; {record['machine']}; commit {record['commit']}, "
        made[library] = f"{markdown_table(head, rows)}\n\n{where}{record['date'][:10]}."
    return made | {"spiking reasons": _list_reasons(record["networks"])}


def _cells(found: dict[str, Any]) -> list[str]:
    tiers = Counter(block["tier"] for block in found["blocks"])
    counted = ", ".join(f"{tier} {num}" for tier, num in tiers.most_common())
    differences = [found["difference"][kind] for kind in ("float32", "float64")]
    shown = ["–" if number is None else f"{number:.0e}" for number in differences]
    return [counted, f"{found['speed']:.1f}", f"{100 * found['altered']:.0f} %", *shown]


def _list_reasons(tried: dict[str, Any]) -> str:
    """A Markdown table: why tensors are not evaluated by a faster tier, and how many they are."""
    seen: dict[tuple[str, str], Counter[str]] = {}
    for library, networks in tried.items():
        for block in (block for found in networks.values() for block in found["blocks"]):
            if block["reason"]:
                key = block["tier"], block["reason"]
                seen.setdefault(key, Counter())[TITLES[library]] += 1
    rows = [
        [tier, reason, ", ".join(f"{library} {num}" for library, num in where.items())]
        for (tier, reason), where in sorted(seen.items())
    ]
    return markdown_table(["tier", "why not a faster one", "parameter tensors"], rows)


def main() -> None:
    """Try and record, or print the tables."""
    if "--tables" not in sys.argv:
        run(sys.argv[sys.argv.index("--only") + 1] if "--only" in sys.argv else "")
    if "--only" not in sys.argv:
        print("\n\n".join(tables().values()))


if __name__ == "__main__":
    main()
