"""`everstep pause`: stop runs at their next step, from any process; `resume` continues them."""

from everstep.cli.args.stop_runs import stop_command

command = stop_command("pause", "Stop RUNS and their child runs at their next step, with a checkpoint; `resume` continues them")
