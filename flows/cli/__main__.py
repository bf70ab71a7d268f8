"""`python -m flows.cli`: the command without its script."""

from flows.cli import main

main()
