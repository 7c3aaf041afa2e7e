"""`everstep pause`: stop a run at its next step, from any process; `resume` continues it."""

from everstep.cli.args.stop import stop_command

command = stop_command("pause", "Stop RUN and its child runs at their next step, with a checkpoint; `resume` continues it")
