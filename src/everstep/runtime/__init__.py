"""Executes runs: `run` is the handle that writes one, `engine` is one attempt at it, `aio` is the same without blocking."""
