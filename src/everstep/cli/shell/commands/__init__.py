"""The commands that only the shell has, or that do more in it than outside; one file for each."""
