"""`everstep shell`: an interactive shell for the commands, with a current run, history and completion.

`session` calls commands, `group` finds them, `terminal` and `scripts` read lines, `commands` holds those that only the shell has.
A store is never open for longer than one command.
"""
