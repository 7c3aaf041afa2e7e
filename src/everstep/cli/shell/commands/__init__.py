"""The commands that only the shell has, or that do more in it; one file for each."""
