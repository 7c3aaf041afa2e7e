"""`everstep cancel`: end a run at its next step, from any process. It cannot be resumed."""

from everstep.cli.args.stop import stop_command

command = stop_command("cancel", "End RUN at its next step, together with its child runs; it cannot be resumed")
