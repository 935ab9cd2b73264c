"""What all tests rely on."""

import os
import signal
import sys

# Shells start background jobs (`make test &`) with Ctrl-C ignored, and Python leaves it so; tests
# of interrupts would then wait for ever.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Tests count what a command writes beside a user's file; what Python caches there is not ours.
sys.dont_write_bytecode = True
os.environ["PYTHONDONTWRITEBYTECODE"] = "1"

# As the command does before torch loads: threads that spin while they wait take the core from the
# tests that run beside them.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")
