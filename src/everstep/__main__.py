"""`python -m everstep` is the command line."""

from everstep.cli.main import run

if __name__ == "__main__":
    run()
