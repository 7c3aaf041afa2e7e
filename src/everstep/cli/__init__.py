"""The command line. `main` finds the command, `app` opens the store, `draw` prints; each command has a file in `commands`.

The library imports nothing from here, and commands import the library only when they need it, so `--help` stays fast.
"""
