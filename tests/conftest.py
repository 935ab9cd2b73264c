"""What all tests rely on."""

import signal

# Shells start background jobs (`make test &`) with Ctrl-C ignored, and Python leaves it so; tests
# of interrupts would then wait for ever.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
