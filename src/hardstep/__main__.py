"""`python -m hardstep`, where the command is not on the path."""

from hardstep.cli.main import main

main()
