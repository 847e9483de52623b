"""`python -m sojourn` is the `sojourn` command."""

from sojourn.cli import main

main()
