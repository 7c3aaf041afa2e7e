"""`everstep cancel`: end runs at their next step, from any process. They cannot be resumed."""

from everstep.cli.args.stop_runs import stop_command

command = stop_command("cancel", "End RUNS at their next step, together with their child runs; they cannot be resumed")
