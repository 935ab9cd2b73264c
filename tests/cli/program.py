"""The program: called in this process, where torch is loaded already, or started as a process."""

import io
import os
import sys
from contextlib import chdir, redirect_stderr, redirect_stdout
from signal import SIGTERM, getsignal, signal
from subprocess import PIPE, CompletedProcess, Popen
from unittest.mock import patch

import pytest

from hardstep.cli.main import main


def hardstep(*arguments, cwd="."):
    """What a command prints and returns."""
    out, err, handler = io.StringIO(), io.StringIO(), getsignal(SIGTERM)
    typed = patch.object(sys, "argv", ["hardstep", *map(str, arguments)])
    try:
        with (
            typed,
            patch.dict(os.environ),
            chdir(cwd),
            redirect_stdout(out),
            redirect_stderr(err),
            pytest.raises(SystemExit) as ended,
        ):
            main()
    finally:
        signal(SIGTERM, handler)
    return CompletedProcess(arguments, ended.value.code, out.getvalue(), err.getvalue())


def start(*arguments):
    """A process that can be sent signals."""
    command = [sys.executable, "-m", "hardstep", *map(str, arguments)]
    alone = os.environ | {"OMP_NUM_THREADS": "1"}
    return Popen(command, stdout=PIPE, stderr=PIPE, text=True, env=alone)
