"""The arguments of every command: each class makes one command, and its docstring is the help.

A field is an option, or an argument if it is marked so, with its type, its default and its help.
Nothing here needs torch, so `hardstep train --help` does not wait for it.
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

from typer import Argument, Option


def _flag(name: str, text: str) -> Any:
    """An option that takes no value; without a metavar of its own, typer would print <bool>."""
    return Option(name, metavar="", help=text)


_Task = Annotated[
    str,
    Argument(
        help="Use this task: snn, mlp (also called mnist), int8, binary, ternary, staircase, "
        "argmax, moe, csnn, bcnn; a forecast: etth1, etth1-relative, etth1-int8, etth1-gates, "
        "waves; a classifier of text: sst2, sst2-argmax, reviews; a head on frozen features: "
        "head-smooth, head-int8, head-binary; a policy: cartpole, acrobot, mountaincar, "
        "pendulum, swimmer, hopper, gym:ID; or your own as path/to/file.py:name."
    ),
]
_Data = Annotated[
    str,
    Option(
        help="Use this data set: digits (bundled), mnist, or fashion (csnn and bcnn). The last two "
        "are read from the folder that HARDSTEP_DATA names, or downloaded once; with mnist, argmax "
        "uses Fashion-MNIST and moe both. With sst2-smollm2, heads use a language model's "
        "features. Other tasks find their data themselves."
    ),
]
_Match = Annotated[
    str,
    Option(
        help="Give every run the same number of steps, evals (evaluations), time (seconds) or "
        "interactions (of a policy with its environment)."
    ),
]
_Budget = Annotated[
    float | None,
    Option(
        help="Stop each run after this many steps, evaluations, seconds or interactions, as "
        "--match says. The default is the task's number of steps, 50,000 evaluations, 20 seconds "
        "or 1,000,000 interactions."
    ),
]
_Records = Annotated[Path | None, Option(help="Append a line of JSON per run to this file.")]
_Processes = Annotated[
    int | None,
    Option(
        min=1,
        help="Run this many at once, with one core each. The default is 1, and with --ray as many "
        "as the cluster has processors.",
    ),
]
_Ray = Annotated[
    str | None,
    Option(
        metavar="[ADDRESS]",
        help="Use Ray for these processes, on the cluster at this address. Without an address, "
        "start Ray on this machine.",
    ),
]
MOST_SEEDS = 10_000  # every run is planned before the first; a slip of the keyboard is refused
_Reference = Annotated[str, Option(help="Compare every other method with this one.")]
_Json = Annotated[bool, _flag("--json", "Print the result as JSON.")]


@dataclass(frozen=True)
class TrainOptions:
    """Train a task's model and score it once on the test set."""

    task: _Task
    data: _Data = "digits"
    precision: Annotated[
        str,
        Option(
            help="Train a policy whose hidden units are float, int8 or binary. A linear policy has "
            "such weights instead."
        ),
    ] = "float"
    seed: Annotated[int, Option(help="Derive every random number of the run from this seed.")] = 0
    steps: Annotated[
        int | None,
        Option(min=1, help="Take this many training steps. The task sets the default."),
    ] = None
    preset: Annotated[
        str,
        Option(
            help="Train with the settings of the task, or with those of: paper (the paper's for "
            "this task), theory (its theory mode), frugal, sketch."
        ),
    ] = "task"
    out: Annotated[
        Path | None,
        Option(
            help="Write checkpoint, log and picture to this folder. The default is a new folder in "
            "runs/."
        ),
    ] = None
    resume: Annotated[
        bool,
        _flag("--resume", "Continue the latest run of this task and seed, or the run in --out."),
    ] = False
    workers: Annotated[
        int | None,
        Option(
            min=1,
            help="Use this many processes for the evaluations of a step, on this machine or, with "
            "--ray, on a cluster. The result is the same, bit for bit.",
        ),
    ] = None
    ray: _Ray = None
    coverage: Annotated[
        bool,
        _flag("--coverage", "Print which hypotheses of the convergence theorem the run met."),
    ] = False
    gif: Annotated[
        bool, _flag("--gif", "Write a film of the trained policy beside the picture.")
    ] = False
    json: _Json = False


@dataclass(frozen=True)
class EvaluateOptions:
    """Score the selected weights of a checkpoint again."""

    checkpoint: Annotated[
        Path,
        Argument(help="Score this checkpoint.pt of `hardstep train`, or the one in this folder."),
    ]
    task: Annotated[
        str | None,
        Option(
            metavar="FILE.py:NAME",
            help="Name the task it was trained on, if it is your own. Its file is run.",
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
            help="Compare these methods, separated by commas: polystep, openai-es, cma-es, "
            "eggroll, mezo, spsa, random, adam, adam-hard. The first is compared with each of the "
            "others."
        ),
    ] = "polystep,openai-es,cma-es"
    match: _Match = "evals"
    budget: _Budget = None
    seeds: Annotated[
        int, Option(min=1, max=MOST_SEEDS, help="Run every method with this many seeds.")
    ] = 3
    options: Annotated[
        list[str],
        Option(
            "--option",
            metavar="METHOD.NAME=VALUE",
            help="Set an option of a method, such as openai-es.sigma=0.05. Repeat it for more.",
        ),
    ] = field(default_factory=list)
    records: _Records = None
    picture: Annotated[
        Path | None,
        Option(help="Draw the curves to this file. The default is a file in runs/."),
    ] = None
    no_picture: Annotated[bool, _flag("--no-picture", "Draw no curves.")] = False
    json: _Json = False


@dataclass(frozen=True)
class TuneOptions:
    """Tune a method's settings on validation: nine configurations, then as many around the best."""

    task: _Task
    method: Annotated[
        str, Option(help="Tune this method; `hardstep compare --help` lists all.")
    ] = "polystep"
    data: _Data = "digits"
    match: _Match = "evals"
    budget: _Budget = None
    seeds: Annotated[
        int,
        Option(
            min=1,
            max=MOST_SEEDS,
            help="Average the score of a configuration over this many seeds.",
        ),
    ] = 1
    first_seed: Annotated[
        int, Option(help="Start with this seed. Use seeds that you do not report later.")
    ] = 100
    records: _Records = None
    processes: _Processes = None
    ray: _Ray = None
    json: _Json = False
    options: Annotated[
        list[str],
        Option(
            "--option",
            metavar="METHOD.NAME=VALUE",
            help="Fix this option instead of tuning it, such as polystep.preset=sketch. Repeat "
            "it for more.",
        ),
    ] = field(default_factory=list)


@dataclass(frozen=True)
class MaxsatOptions:
    """Satisfy as many clauses as possible. Ctrl-C prints the best assignment found."""

    file: Annotated[
        Path | None,
        Argument(help="Read this DIMACS CNF or WCNF file, plain or compressed (gz, xz)."),
    ] = None
    random: Annotated[
        int | None, Option(metavar="N", help="Make a random 3-SAT formula with N variables.")
    ] = None
    ratio: Annotated[float, Option(help="Make this many clauses per variable, with --random.")] = (
        4.27
    )
    seconds: Annotated[
        float | None, Option(help="Search for this many seconds. The default is 60.")
    ] = None
    steps: Annotated[
        int | None,
        Option(
            min=1,
            help="Take this many steps instead, which gives the same result on every machine.",
        ),
    ] = None
    target: Annotated[
        int | None, Option(min=0, help="Stop when the falsified clauses weigh at most this much.")
    ] = None
    seed: Annotated[
        int, Option(help="Derive every random number from this seed, and the clauses of --random.")
    ] = 0
    preset: Annotated[
        str,
        Option(
            help="Search with these settings: signs, or paper, those of the runs printed in the "
            "paper."
        ),
    ] = "signs"
    polish: Annotated[
        bool,
        _flag(
            "--polish",
            "Improve the result by local search (probSAT), in the second half of the seconds, "
            "or after the steps.",
        ),
    ] = False
    json: _Json = False


@dataclass(frozen=True)
class DiagnoseOptions:
    """Say why a run does not move, and recommend temperature and radii."""

    task: _Task
    data: _Data = "digits"
    seed: Annotated[int, Option(help="Draw weights, batches and trials from this seed.")] = 0
    temperature: Annotated[
        float | None,
        Option(help="Examine this temperature, in units of the loss. The default is the task's."),
    ] = None
    step_radius: Annotated[
        float | None, Option(help="Examine this step radius, a length. The default is the task's.")
    ] = None
    probe_radius: Annotated[
        float | None, Option(help="Examine this probe radius, a length. The default is the task's.")
    ] = None
    checkpoint: Annotated[
        Path | None,
        Option(
            help="Examine the weights of this checkpoint.pt, or of the one in this folder. The "
            "default is the initial weights."
        ),
    ] = None
    picture: Annotated[
        Path | None, Option(help="Draw the share of flat pairs over the radius to this file.")
    ] = None
    pairs: Annotated[
        bool,
        _flag("--pairs", "Print how many pairs of mirrored probes, as in MeZO, have equal losses."),
    ] = False
    json: _Json = False


@dataclass(frozen=True)
class TheoryOptions:
    """Check the method's theorems numerically; exit 0 only if every check is sound."""

    full: Annotated[bool, _flag("--full", "Take the full sample sizes, which need minutes.")] = (
        False
    )
    only: Annotated[str, Option(help="Run only these groups or checks, such as A or A1,C.")] = ""
    trained: Annotated[bool, _flag("--trained", "Run the protocols that train networks, too.")] = (
        False
    )
    seed: Annotated[int, Option(help="Derive every random number from this seed.")] = 0
    json: Annotated[Path | None, Option(help="Write the outcomes as JSON to this file.")] = None
    html: Annotated[Path | None, Option(help="Write a page with the outcomes to this file.")] = None


@dataclass(frozen=True)
class ReportOptions:
    """Write one page with tables, curves and ablations from records."""

    records: Annotated[
        list[Path], Argument(help="Read these files of records, or all in these folders.")
    ]
    out: Annotated[
        Path,
        Option(
            "--out",
            "-o",
            help="Write this page: HTML if the name ends in .html, Markdown if it ends in .md.",
        ),
    ] = Path("report.html")
    reference: _Reference = "polystep"


@dataclass(frozen=True)
class SuiteOptions:
    """Run what a suite asks for and has no record yet."""

    suite: Annotated[Path, Argument(help="Read this suite, a TOML file.")]
    records: Annotated[
        Path | None,
        Option(help="Append records to this file. The default lies beside the suite."),
    ] = None
    processes: _Processes = None
    ray: _Ray = None
    tasks: Annotated[str | None, Option(help="Run only these tasks, such as snn,int8.")] = None
    methods: Annotated[str | None, Option(help="Run only these methods.")] = None
    match: Annotated[
        str | None, Option(help="Run only what is matched by steps, evals, time or interactions.")
    ] = None


@dataclass(frozen=True)
class TableOptions:
    """Print tables, and wins, ties and losses per axis."""

    records: Annotated[Path, Argument(help="Read this file of records.")]
    reference: _Reference = "polystep"
