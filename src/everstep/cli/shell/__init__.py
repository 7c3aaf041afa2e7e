"""`everstep shell`: the commands of the command line, one after the other, with a current run, history and completion.

`session` calls commands, `group` knows them, `terminal` and `scripts` read lines, `own` holds the commands that only the shell has.
Nothing here opens a store for longer than one command.
"""
