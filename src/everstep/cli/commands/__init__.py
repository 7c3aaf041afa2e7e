"""One file for each command of the command line; `everstep.cli.main` names them all."""
