"""The past of a run: differences, blame, forks."""
