"""`everstep cancel`: stop a run at its next step, from any process, for good."""

from everstep.cli.args.stop import stop_command

command = stop_command("cancel", "Stop RUN at its next step, for good. Its child runs are cancelled, too.")
