"""The `hardstep` command. Commands parse here and load torch only when they run."""

import sys
from pathlib import Path
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
    task: Annotated[str, typer.Argument(help="snn, mlp, int8, staircase, argmax or moe.")],
    data: Annotated[
        str,
        typer.Option(
            help="digits (bundled) or mnist (with Fashion-MNIST for moe): read from the folder "
            "HARDSTEP_DATA names, else downloaded once."
        ),
    ] = "digits",
    seed: Annotated[int, typer.Option(help="Fixes the whole run.")] = 0,
    steps: Annotated[int | None, typer.Option(min=1, help="Optimizer steps.")] = None,
    out: Annotated[Path | None, typer.Option(help="Folder for checkpoint, log, picture.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the run in --out.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Train a hard architecture and score it once on the test set."""
    from hardstep.cli.train import TrainOptions, run_train

    raise typer.Exit(run_train(TrainOptions(task, data, seed, steps, out, resume, json)))


@app.command()
def evaluate(
    checkpoint: Annotated[Path, typer.Argument(help="A checkpoint.pt that `train` wrote.")],
    json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Score the selected weights of a checkpoint again."""
    from hardstep.cli.evaluate import run_evaluate

    raise typer.Exit(run_evaluate(checkpoint, json))


def main() -> None:
    """Entry point: errors of ours are one sentence and exit code 2."""
    try:
        app()
    except HardstepError as error:
        print(f"hardstep: {error}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        sys.exit(130)
