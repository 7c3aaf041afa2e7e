"""The command line. `main` finds the command, `app` opens the store, `draw` and `pages` print; each command has a file in `commands`.
`catalogue` names the commands, `args` parses arguments, `shell` is the interactive shell, `exit_codes` has the exit code of each error.
`starts` has the templates of `everstep new`.

The library imports nothing from here, and commands import the library only when they need it, so `--help` stays fast.
"""
