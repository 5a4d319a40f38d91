"""`python -m latecomer` is the command `latecomer`."""

from latecomer.cli import main

main()
