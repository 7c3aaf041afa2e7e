"""The command line. `main` finds the command, `app` opens the store, `output` prints; each command has a file in `commands`.

Nothing here is imported by the library, and nothing of the library is imported before a command needs it: `--help` stays quick.
"""
