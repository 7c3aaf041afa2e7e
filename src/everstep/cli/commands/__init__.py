"""One file for each command of the command line; `everstep.cli.catalogue` names them all."""
