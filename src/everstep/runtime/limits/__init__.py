"""Limits of a run: budgets, timeouts, automatic checkpoints, signals, crash loops."""
