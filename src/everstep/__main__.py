"""`python -m everstep` is the command line."""

from everstep.cli.main import run

run()
