"""`everstep pause`: stop a run at its next step, from any process; `resume` lets it go on."""

from everstep.cli.args.stop import stop_command

command = stop_command("pause", "Stop RUN at its next step, with a checkpoint; resume lets it go on. Its child runs are paused, too.")
