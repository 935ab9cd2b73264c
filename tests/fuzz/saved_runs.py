"""Targets: the files of a run, which are written once and read back by resuming and evaluating."""

from pathlib import Path
from random import Random
from typing import Any

import torch
from torch import nn

from hardstep.errors import HardstepError
from hardstep.optim import PolyStep
from hardstep.training import Checkpoint, JsonlLog, checkpoints, fit
from tests.fuzz.answers import ACCEPTED, Fault, ask, close, judge, refuse
from tests.fuzz.damage import damage, damage_binary
from tests.fuzz.target import Case, Target
from tests.fuzz.trees import damage_tree, from_json, to_json

CHECKPOINT, LOG = Path("checkpoint.pt"), Path("log.jsonl")
PLANTED = Path("planted.py")
STEPS = 3
OUT = ("--out", "run")
TRAIN = ("train", "mlp", "--steps", "2", *OUT)


def _fit(steps: int, resume: bool) -> dict[str, torch.Tensor]:
    """The weights of a small run; of its end, if it is only looked at."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))
    inputs, labels = torch.linspace(-1, 1, 24).reshape(8, 3), torch.arange(8) % 2
    batches = [(inputs[:4], labels[:4]), (inputs[4:], labels[4:])]
    fit(
        model,
        batches,
        batches[:1],
        optimizer=PolyStep(model, seed=1),
        steps=steps,
        callbacks=[JsonlLog(LOG)],
        checkpoint=Checkpoint(CHECKPOINT, meta={"task": "mlp", "data": "digits", "seed": 0}),
        resume=resume,
    )
    return {name: value.clone() for name, value in model.state_dict().items()}


def _save(tree: dict[str, Any]) -> bytes:
    """A whole checkpoint with this content, by the function that writes all of them."""
    place = Path("made.pt")
    checkpoints.save(place, {name: part for name, part in tree.items() if name != "format"})
    content = place.read_bytes()
    place.unlink()
    return content


class SavedByFit(Target):
    """A checkpoint, resumed by `fit`: refused, or the same weights as before."""

    name, share = "checkpoint", 4.0

    def prepare(self) -> None:
        """Train."""
        _fit(STEPS, resume=False)

    def open(self) -> None:
        """What an undamaged one gives."""
        self.content = CHECKPOINT.read_bytes()
        self.tree = checkpoints.load(CHECKPOINT)
        self.weights = _fit(STEPS, resume=True)
        self.log = LOG.read_bytes()

    def vary(self, rng: Random) -> Case:
        """Damaged, or saved by our own function with other content."""
        if rng.random() < 0.5:
            return Case(damage_binary(self.content, rng, [self.content]), exact=True)
        return Case(_save(damage_tree(self.tree, rng)))

    def read(self, case: Case) -> str:
        """Resume."""
        CHECKPOINT.write_bytes(case.content)
        LOG.write_bytes(self.log)
        try:
            weights = _fit(STEPS, resume=True)
        except HardstepError as error:
            if CHECKPOINT.read_bytes() != case.content:
                raise Fault("a refused checkpoint was written to", "training/fit.py") from error
            return refuse(error, case.content.decode("latin-1"))
        if case.exact and not all(torch.equal(weights[n], v) for n, v in self.weights.items()):
            raise Fault("a damaged checkpoint gives other weights", "training/checkpoints.py")
        # A run that has taken no step, says its checkpoint, keeps the log it finds under that name.
        LOG.with_suffix(".1.jsonl").unlink(missing_ok=True)
        return ACCEPTED


class LogOfFit(SavedByFit):
    """The log of an unfinished run, which resuming cuts and continues."""

    name, share = "log", 0.3

    def prepare(self) -> None:
        """Train, but not to the end."""
        _fit(STEPS - 1, resume=False)

    def open(self) -> None:
        """What an undamaged one gives."""
        self.content, self.log = CHECKPOINT.read_bytes(), LOG.read_bytes()
        self.weights = _fit(STEPS, resume=True)

    def vary(self, rng: Random) -> Case:
        """A log is for reading: what was damaged in it does not change the run."""
        return Case(damage(self.log, rng, [self.log]), exact=True)

    def read(self, case: Case) -> str:
        """Resume."""
        CHECKPOINT.write_bytes(self.content)
        LOG.write_bytes(case.content)
        try:
            weights = _fit(STEPS, resume=True)
        except HardstepError as error:
            return refuse(error, case.content.decode("latin-1"))
        if not all(torch.equal(weights[n], v) for n, v in self.weights.items()):
            raise Fault("a damaged log gives other weights", "training/callbacks.py")
        return ACCEPTED


class SavedByTrain(Target):
    """The checkpoint of `hardstep train`, read by the commands that take one."""

    name, share = "evaluate", 1.0
    file = Path("run/checkpoint.pt")
    commands: tuple[tuple[str, ...], ...] = (
        ("evaluate", "run", "--json"),
        ("diagnose", "mlp", "--checkpoint", "run/checkpoint.pt"),
        (*TRAIN, "--resume", "--json"),
    )

    def prepare(self) -> None:
        """Train; a file that no checkpoint may make us run tells when it is run."""
        answer = ask(*TRAIN)
        assert answer.code == 0, answer.err
        PLANTED.write_text("open('ran', 'w').close()\n")

    def open(self) -> None:
        """What an undamaged one gives."""
        close("diagnose.diagnose", "train.fit")
        self.content = self.file.read_bytes()
        self.tree = self.load()
        self.answers = [ask(*command).out for command in self.commands]

    def load(self) -> dict[str, Any]:
        """What the sample holds."""
        return checkpoints.load(self.file)

    def vary(self, rng: Random) -> Case:
        """As above; what it says of its task is changed more often than its weights."""
        if rng.random() < 0.5:
            return Case(damage_binary(self.content, rng, [self.content]), exact=True)
        if rng.random() < 0.1:
            meta = self.tree["meta"] | {
                "task": rng.choice((f"{PLANTED}:x", str(PLANTED.resolve())))
            }
            return Case(_save(self.tree | {"meta": meta}))
        part = rng.choice(("meta", "best", None))
        changed = damage_tree(self.tree if part is None else {part: self.tree[part]}, rng)
        return Case(_save(changed if part is None else self.tree | changed))

    def read(self, case: Case) -> str:
        """Every command refuses it, or answers as before."""
        self.file.write_bytes(case.content)
        outcome = ACCEPTED
        given = case.content.decode("latin-1")
        for command, before in zip(self.commands, self.answers, strict=True):
            answer = ask(*command)
            outcome = judge(answer, given)
            if case.exact and outcome == ACCEPTED and answer.out != before:
                raise Fault(f"{command[0]} answers otherwise", str(self.file), answer.out)
        return outcome


class ResultOfTrain(SavedByTrain):
    """The result of a finished run, which resuming it prints again."""

    name, share = "result", 1.0
    file = Path("run/result.json")
    commands = ((*TRAIN, "--resume", "--json"), (*TRAIN, "--resume"))

    def load(self) -> dict[str, Any]:
        """What the sample holds."""
        found: dict[str, Any] = from_json(self.content)
        return found

    def vary(self, rng: Random) -> Case:
        """Damaged, or with other values."""
        if rng.random() < 0.6:
            return Case(damage(self.content, rng, [self.content]), exact=True)
        return Case(to_json(damage_tree(self.tree, rng)))


class LogOfTrain(SavedByTrain):
    """The log of a run that ended before its result was written: resuming draws it."""

    name, share = "picture", 0.05
    file = Path("run/log.jsonl")

    def open(self) -> None:
        """The sample."""
        self.content = self.file.read_bytes()

    def vary(self, rng: Random) -> Case:
        """A log is for reading: what was damaged in it does not matter for the result."""
        return Case(damage(self.content, rng, [self.content]))

    def read(self, case: Case) -> str:
        """Resume: all steps are taken."""
        self.file.write_bytes(case.content)
        for name in ("result.json", "picture.png"):
            Path("run", name).unlink(missing_ok=True)
        return judge(ask(*TRAIN, "--resume"), case.content.decode("latin-1"))
