"""Going through a run's past: differences, who changed what, forks."""
