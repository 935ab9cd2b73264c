"""The `hardstep` command. Commands parse here and load torch only when they run."""

import os
import signal
import sys
from pathlib import Path
from types import FrameType
from typing import Annotated

import typer

from hardstep import __version__
from hardstep.errors import HardstepError

app = typer.Typer(
    name="hardstep",
    help="Train networks and programs whose loss jumps, with forward passes only.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

TASKS = (
    "snn, mlp (also called mnist), int8, binary, ternary, staircase, argmax, moe, or a task of "
    "your own: path/to/file.py:name."
)


def _show_version(wanted: bool) -> None:
    if wanted:
        print(__version__)
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="And exit.")
    ] = False,
) -> None:
    del version


@app.command()
def train(
    task: Annotated[str, typer.Argument(help=TASKS)],
    data: Annotated[
        str,
        typer.Option(
            help="digits (bundled) or mnist (Fashion-MNIST for argmax, both for moe): read from "
            "the folder HARDSTEP_DATA names, else downloaded once."
        ),
    ] = "digits",
    seed: Annotated[int, typer.Option(help="Fixes the whole run.")] = 0,
    steps: Annotated[int | None, typer.Option(min=1, help="Optimizer steps.")] = None,
    out: Annotated[Path | None, typer.Option(help="Folder for checkpoint, log, picture.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the run in --out.")] = False,
    coverage: Annotated[
        bool, typer.Option("--coverage", help="Print which hypotheses of the theorem it met.")
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Train a hard architecture and score it once on the test set."""
    from hardstep.cli.train import TrainOptions, run_train

    raise typer.Exit(run_train(TrainOptions(task, data, seed, steps, out, resume, coverage, json)))


@app.command()
def evaluate(
    checkpoint: Annotated[
        Path, typer.Argument(help="A checkpoint.pt that `train` wrote, or its folder.")
    ],
    json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Score the selected weights of a checkpoint again."""
    from hardstep.cli.evaluate import run_evaluate

    raise typer.Exit(run_evaluate(checkpoint, json))


@app.command()
def compare(
    task: Annotated[str, typer.Argument(help=TASKS)],
    data: Annotated[str, typer.Option(help="digits or mnist.")] = "digits",
    methods: Annotated[
        str,
        typer.Option(
            help="Of polystep, openai-es, cma-es, eggroll, mezo, spsa, random, adam; the first is "
            "compared with the others."
        ),
    ] = "polystep,openai-es,cma-es",
    match: Annotated[str, typer.Option(help="What is equal: steps, evals or time.")] = "evals",
    budget: Annotated[float | None, typer.Option(help="How many, or seconds.")] = None,
    seeds: Annotated[int, typer.Option(min=1, help="Runs per method.")] = 3,
    option: Annotated[
        list[str] | None, typer.Option(help="METHOD.NAME=VALUE, as in openai-es.sigma=0.05.")
    ] = None,
    records: Annotated[Path | None, typer.Option(help="Append every run to this file.")] = None,
    picture: Annotated[
        Path | None, typer.Option(help="Where to draw the curves; in runs/ if left out.")
    ] = None,
    no_picture: Annotated[bool, typer.Option("--no-picture", help="Draw nothing.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print the runs as JSON.")] = False,
) -> None:
    """Compare methods on a task at equal steps, evaluations or time."""
    from hardstep.cli.compare import CompareOptions, run_compare

    files = (records, picture, no_picture)
    asked = CompareOptions(task, data, methods, match, budget, seeds, *files, json, option or [])
    raise typer.Exit(run_compare(asked))


@app.command()
def tune(
    task: Annotated[str, typer.Argument(help=TASKS)],
    method: Annotated[str, typer.Option(help="As in compare.")] = "polystep",
    data: Annotated[str, typer.Option(help="digits or mnist.")] = "digits",
    match: Annotated[str, typer.Option(help="What the budget is: steps, evals or time.")] = "evals",
    budget: Annotated[float | None, typer.Option(help="Of every configuration.")] = None,
    seeds: Annotated[int, typer.Option(min=1, help="Averaged over.")] = 1,
    first_seed: Annotated[int, typer.Option(help="Not one that is reported later.")] = 100,
    records: Annotated[Path | None, typer.Option(help="Append every run to this file.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print the best as JSON.")] = False,
    option: Annotated[
        list[str] | None,
        typer.Option(metavar="METHOD.NAME=VALUE", help="Not tuned, e.g. polystep.preset=sketch."),
    ] = None,
) -> None:
    """Sweep a method's settings on validation: nine configurations, then nine around the best."""
    from hardstep.cli.tune import TuneOptions, run_tune

    sweep = (data, match, budget, seeds, first_seed, records, json, option or [])
    raise typer.Exit(run_tune(TuneOptions(task, method, *sweep)))


@app.command()
def maxsat(
    file: Annotated[
        Path | None, typer.Argument(help="DIMACS CNF or WCNF, plain or compressed (gz, xz).")
    ] = None,
    random: Annotated[
        int | None, typer.Option(metavar="N", help="Random 3-SAT with N variables instead.")
    ] = None,
    ratio: Annotated[float, typer.Option(help="Clauses per variable, with --random.")] = 4.27,
    seconds: Annotated[float | None, typer.Option(help="Time to search; 60 by default.")] = None,
    steps: Annotated[
        int | None, typer.Option(min=1, help="Steps instead of time: the same on any machine.")
    ] = None,
    target: Annotated[
        int | None, typer.Option(min=0, help="Stop at this falsified weight or less.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Fixes the run, and the clauses of --random.")] = 0,
    polish: Annotated[
        bool, typer.Option("--polish", help="Let local search (probSAT) have the second half.")
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Satisfy as many clauses as possible; prints c, o, s and v lines. Ctrl-C prints the best."""
    from hardstep.cli.maxsat import MaxsatOptions, run_maxsat

    options = MaxsatOptions(file, random, ratio, seconds, steps, target, seed, polish, json)
    raise typer.Exit(run_maxsat(options))


@app.command()
def diagnose(
    task: Annotated[str, typer.Argument(help=TASKS)],
    data: Annotated[str, typer.Option(help="digits or mnist.")] = "digits",
    seed: Annotated[int, typer.Option(help="Of the weights, the sample and the trials.")] = 0,
    temperature: Annotated[float | None, typer.Option(help="Yours, if not the task's.")] = None,
    step_radius: Annotated[float | None, typer.Option(help="Yours, as a length.")] = None,
    probe_radius: Annotated[float | None, typer.Option(help="Yours, as a length.")] = None,
    checkpoint: Annotated[
        Path | None, typer.Option(help="Where it is stuck; the initial weights otherwise.")
    ] = None,
    picture: Annotated[Path | None, typer.Option(help="Draw flat pairs over the radius.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Say why a run does not move, and recommend temperature and radii."""
    from hardstep.cli.diagnose import DiagnoseOptions, run_diagnose

    radii = (temperature, step_radius, probe_radius)
    raise typer.Exit(
        run_diagnose(DiagnoseOptions(task, data, seed, *radii, checkpoint, picture, json))
    )


@app.command()
def theory(
    full: Annotated[bool, typer.Option("--full", help="Full sample sizes: minutes.")] = False,
    only: Annotated[str, typer.Option(help="Groups or checks, such as A or A1,C.")] = "",
    trained: Annotated[
        bool, typer.Option("--trained", help="Also the protocols that train networks.")
    ] = False,
    seed: Annotated[int, typer.Option(help="Of every draw.")] = 0,
    json: Annotated[Path | None, typer.Option(help="Write the outcomes to this file.")] = None,
    html: Annotated[Path | None, typer.Option(help="Write a page to this file.")] = None,
) -> None:
    """Check the method's theorems numerically; exit 0 only if every check is sound."""
    from hardstep.cli.theory import TheoryOptions, run_theory

    raise typer.Exit(run_theory(TheoryOptions(full, only, trained, seed, json, html)))


@app.command()
def report(
    records: Annotated[
        list[Path], typer.Argument(help="Files that `bench run`, `compare` or `tune` wrote.")
    ],
    out: Annotated[Path, typer.Option("--out", "-o", help="The page; Markdown if .md.")] = Path(
        "report.html"
    ),
    reference: Annotated[str, typer.Option(help="Compared with every other one.")] = "polystep",
) -> None:
    """Write one page with tables, curves and ablations from records."""
    from hardstep.cli.report import ReportOptions, run_report

    raise typer.Exit(run_report(ReportOptions(records, out, reference)))


bench = typer.Typer(help="Suites of comparisons, recorded run by run.", no_args_is_help=True)
app.add_typer(bench, name="bench")


@bench.command("run")
def bench_run(
    suite: Annotated[Path, typer.Argument(help="A TOML file; see docs/comparing.md.")],
    records: Annotated[
        Path | None, typer.Option(help="Where runs are kept; beside the suite by default.")
    ] = None,
    processes: Annotated[int, typer.Option(min=1, help="Runs at once, one core each.")] = 1,
    tasks: Annotated[str | None, typer.Option(help="Only these, as in snn,int8.")] = None,
    methods: Annotated[str | None, typer.Option(help="Only these.")] = None,
    match: Annotated[str | None, typer.Option(help="Only steps, evals or time.")] = None,
) -> None:
    """Run what a suite asks for and is not recorded yet."""
    from hardstep.cli.bench import Part, run_suite

    records = records or suite.with_suffix(".jsonl")
    raise typer.Exit(run_suite(suite, records, processes, Part(tasks, methods, match)))


@bench.command("table")
def bench_table(
    records: Annotated[Path, typer.Argument(help="A file that `bench run` or `compare` wrote.")],
    reference: Annotated[str, typer.Option(help="Compared with every other one.")] = "polystep",
) -> None:
    """Print tables, and wins, ties and losses per axis."""
    from hardstep.cli.bench import run_table

    raise typer.Exit(run_table(records, reference))


def main() -> None:
    """Entry point: errors of ours are one sentence and exit code 2."""
    # Before torch and numba load: threads that spin while they wait make a step many times slower
    # as soon as another process wants a core, and gain nothing worth that where none does.
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    signal.signal(signal.SIGTERM, _terminated)
    try:
        app()
    except HardstepError as error:
        print(f"hardstep: {error}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        sys.exit(130)


def _terminated(signum: int, frame: FrameType | None) -> None:
    """Do what Ctrl-C would do: `kill` and batch systems do not take a run's results with them."""
    interrupt = signal.getsignal(signal.SIGINT)
    if not callable(interrupt):  # a background job ignores Ctrl-C, but not this
        interrupt = signal.default_int_handler
    interrupt(signum, frame)
