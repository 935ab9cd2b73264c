"""`python -m hardstep`, as torchrun starts it: the `hardstep` program."""

from hardstep.cli.main import main

main()
