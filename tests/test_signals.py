"""Ctrl-C and `kill` while the program loads: one line, exit code 130, never a traceback."""

import os
import signal
import sys
from pathlib import Path
from subprocess import PIPE, Popen, run

import pytest

from hardstep._signals import EndAtOnce

# Interrupts itself as soon as it looks for a module, which is in the middle of some import.
HOOK = """
import os, signal, sys
class Interrupt:
    def find_spec(self, name, path=None, target=None):
        if name == {module!r}:
            os.kill(os.getpid(), signal.{number})
sys.meta_path.insert(0, Interrupt())
"""


@pytest.mark.parametrize(
    ("as_script", "module", "number"),
    [(False, "lazy_loader", "SIGINT"), (True, "lazy_loader", "SIGTERM"), (True, "typer", "SIGINT"),
     (False, "torch", "SIGINT")],
)  # fmt: skip
def test_an_interrupt_while_modules_load_is_one_line(tmp_path, as_script, module, number):
    (tmp_path / "sitecustomize.py").write_text(HOOK.format(module=module, number=number))
    script = tmp_path / "hardstep"  # as pip writes it
    script.write_text("import sys\nfrom hardstep.cli.main import main\nsys.exit(main())\n")
    source = Path(__file__).parents[1] / "src"
    place = os.pathsep.join(map(str, (tmp_path, source)))
    start = [str(script)] if as_script else ["-m", "hardstep"]
    done = run(
        [sys.executable, *start, "train", "mlp", "--out", tmp_path / "run"],
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": place},
        timeout=60,
    )
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "hardstep: interrupted\n")
    assert not (tmp_path / "run").exists()


def test_a_background_job_ignores_ctrl_c_and_others_get_their_handlers_back():
    kept = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with EndAtOnce():
            assert signal.getsignal(signal.SIGINT) == signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, kept)
    with EndAtOnce():
        assert signal.getsignal(signal.SIGINT) not in (kept, signal.SIG_IGN)
    assert signal.getsignal(signal.SIGINT) is kept


def test_a_library_leaves_signals_alone():
    code = "import signal, hardstep; hardstep.ConfigError; print(signal.getsignal(signal.SIGINT))"
    with Popen([sys.executable, "-c", code], stdout=PIPE, text=True) as process:
        assert "default_int_handler" in process.communicate(timeout=60)[0]
