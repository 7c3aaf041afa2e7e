"""`python -m everstep` is the command line."""

import sys

if __name__ == "__main__":
    if not sys.flags.safe_path:
        del sys.path[0]  # -m puts the working folder before all libraries: a file secrets.py there would be run in place of Python's own
    from everstep.cli.main import run

    run()
