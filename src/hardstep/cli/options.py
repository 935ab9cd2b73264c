"""The arguments of every command: each class makes one command, and its docstring is the help.

A field is an option, or an argument if it is marked so, with its type, its default and its help.
Nothing here needs torch, so `hardstep train --help` does not wait for it.
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

from typer import Argument, Option

_Task = Annotated[
    str,
    Argument(
        help="The task: snn, mlp (also called mnist), int8, binary, ternary, staircase, argmax, "
        "moe, or one of your own as path/to/file.py:name."
    ),
]
_Data = Annotated[
    str,
    Option(
        help="The data set: digits is bundled; mnist (Fashion-MNIST for argmax, both for moe) is "
        "read from the folder that HARDSTEP_DATA names, else downloaded once."
    ),
]
_Match = Annotated[
    str, Option(help="What the budget counts and every run has equally: steps, evals or time.")
]
_Budget = Annotated[
    float | None,
    Option(
        help="How many steps, evaluations or seconds each run may take; if left out, the task's "
        "own steps, 50,000 evaluations or 20 seconds."
    ),
]
_Records = Annotated[Path | None, Option(help="Append a line of JSON per run to this file.")]
_Reference = Annotated[str, Option(help="The method that every other one is compared with.")]
MOST_SEEDS = 10_000  # every run is planned before the first; a slip of the keyboard is refused
_Json = Annotated[bool, Option("--json", help="Print the result as JSON.")]


@dataclass(frozen=True)
class TrainOptions:
    """Train a hard architecture and score it once on the test set."""

    task: _Task
    data: _Data = "digits"
    seed: Annotated[int, Option(help="The seed that the whole run follows from.")] = 0
    steps: Annotated[
        int | None, Option(min=1, help="How many training steps to take; the task's own if not.")
    ] = None
    out: Annotated[
        Path | None,
        Option(help="The folder for checkpoint, log and picture; a new one in runs/ if left out."),
    ] = None
    resume: Annotated[bool, Option("--resume", help="Continue the run in the folder.")] = False
    coverage: Annotated[
        bool, Option("--coverage", help="Print which hypotheses of the theorem the run met.")
    ] = False
    json: _Json = False


@dataclass(frozen=True)
class EvaluateOptions:
    """Score the selected weights of a checkpoint again."""

    checkpoint: Annotated[
        Path, Argument(help="A checkpoint.pt that `hardstep train` wrote, or its folder.")
    ]
    task: Annotated[
        str | None,
        Option(
            metavar="FILE.py:NAME",
            help="The task it was trained on, if that is one of your own; the file is run.",
        ),
    ] = None
    json: _Json = False


@dataclass(frozen=True)
class CompareOptions:
    """Compare methods on a task at equal steps, evaluations or time."""

    task: _Task
    data: _Data = "digits"
    methods: Annotated[
        str,
        Option(
            help="The methods, with commas between: polystep, openai-es, cma-es, eggroll, mezo, "
            "spsa, random, adam. The first is compared with the others."
        ),
    ] = "polystep,openai-es,cma-es"
    match: _Match = "evals"
    budget: _Budget = None
    seeds: Annotated[
        int, Option(min=1, max=MOST_SEEDS, help="How many seeds every method runs with.")
    ] = 3
    options: Annotated[
        list[str],
        Option(
            "--option",
            metavar="METHOD.NAME=VALUE",
            help="A setting of a method, such as openai-es.sigma=0.05; may be repeated.",
        ),
    ] = field(default_factory=list)
    records: _Records = None
    picture: Annotated[
        Path | None, Option(help="The file to draw the curves to; one in runs/ if left out.")
    ] = None
    no_picture: Annotated[bool, Option("--no-picture", help="Draw no curves.")] = False
    json: _Json = False


@dataclass(frozen=True)
class TuneOptions:
    """Sweep a method's settings on validation: nine configurations, then nine around the best."""

    task: _Task
    method: Annotated[str, Option(help="The method, as in `hardstep compare`.")] = "polystep"
    data: _Data = "digits"
    match: _Match = "evals"
    budget: _Budget = None
    seeds: Annotated[
        int,
        Option(
            min=1, max=MOST_SEEDS, help="How many seeds a configuration's score is the mean over."
        ),
    ] = 1
    first_seed: Annotated[
        int, Option(help="The first of these seeds; take none that is reported later.")
    ] = 100
    records: _Records = None
    json: _Json = False
    options: Annotated[
        list[str],
        Option(
            "--option",
            metavar="METHOD.NAME=VALUE",
            help="A setting to leave as it is, such as polystep.preset=sketch; may be repeated.",
        ),
    ] = field(default_factory=list)


@dataclass(frozen=True)
class MaxsatOptions:
    """Satisfy as many clauses as possible; prints c, o, s and v lines. Ctrl-C prints the best."""

    file: Annotated[
        Path | None, Argument(help="A DIMACS CNF or WCNF file, plain or compressed (gz, xz).")
    ] = None
    random: Annotated[
        int | None, Option(metavar="N", help="Make a random 3-SAT formula with N variables.")
    ] = None
    ratio: Annotated[float, Option(help="Clauses per variable, with --random.")] = 4.27
    seconds: Annotated[float | None, Option(help="Seconds to search; 60 if left out.")] = None
    steps: Annotated[
        int | None, Option(min=1, help="Steps to search instead: the same on any machine.")
    ] = None
    target: Annotated[int | None, Option(min=0, help="Stop at this falsified weight or less.")] = (
        None
    )
    seed: Annotated[int, Option(help="The seed of the search, and of the clauses of --random.")] = 0
    polish: Annotated[
        bool, Option("--polish", help="Give the second half to local search (probSAT).")
    ] = False
    json: _Json = False


@dataclass(frozen=True)
class DiagnoseOptions:
    """Say why a run does not move, and recommend temperature and radii."""

    task: _Task
    data: _Data = "digits"
    seed: Annotated[int, Option(help="The seed of the weights, the sample and the trials.")] = 0
    temperature: Annotated[
        float | None, Option(help="The temperature you use; the task's if left out.")
    ] = None
    step_radius: Annotated[
        float | None, Option(help="The step radius you use, as a length; the task's if left out.")
    ] = None
    probe_radius: Annotated[
        float | None, Option(help="The probe radius you use, as a length; the task's if left out.")
    ] = None
    checkpoint: Annotated[
        Path | None,
        Option(help="The checkpoint where the run is stuck; the initial weights if left out."),
    ] = None
    picture: Annotated[
        Path | None, Option(help="Draw the share of flat pairs over the radius to this file.")
    ] = None
    json: _Json = False


@dataclass(frozen=True)
class TheoryOptions:
    """Check the method's theorems numerically; exit 0 only if every check is sound."""

    full: Annotated[
        bool, Option("--full", help="Take the full sample sizes, which need minutes.")
    ] = False
    only: Annotated[str, Option(help="Run only these groups or checks, such as A or A1,C.")] = ""
    trained: Annotated[
        bool, Option("--trained", help="Run the protocols that train networks, too.")
    ] = False
    seed: Annotated[int, Option(help="The seed of every draw.")] = 0
    json: Annotated[Path | None, Option(help="Write the outcomes as JSON to this file.")] = None
    html: Annotated[Path | None, Option(help="Write a page with them to this file.")] = None


@dataclass(frozen=True)
class ReportOptions:
    """Write one page with tables, curves and ablations from records."""

    records: Annotated[
        list[Path], Argument(help="Files that `bench run`, `compare` or `tune` wrote, or folders.")
    ]
    out: Annotated[
        Path, Option("--out", "-o", help="The page to write: HTML, or Markdown if it ends in .md.")
    ] = Path("report.html")
    reference: _Reference = "polystep"


@dataclass(frozen=True)
class SuiteOptions:
    """Run what a suite asks for and is not recorded yet."""

    suite: Annotated[Path, Argument(help="A TOML file, as docs/how-to/compare.md describes it.")]
    records: Annotated[
        Path | None,
        Option(help="The file that runs are recorded in; beside the suite if left out."),
    ] = None
    processes: Annotated[int, Option(min=1, help="How many runs at once, one core each.")] = 1
    tasks: Annotated[str | None, Option(help="Run only these tasks, such as snn,int8.")] = None
    methods: Annotated[str | None, Option(help="Run only these methods.")] = None
    match: Annotated[
        str | None, Option(help="Run only what is matched by steps, evals or time.")
    ] = None


@dataclass(frozen=True)
class TableOptions:
    """Print tables, and wins, ties and losses per axis."""

    records: Annotated[Path, Argument(help="A file that `bench run` or `compare` wrote.")]
    reference: _Reference = "polystep"
