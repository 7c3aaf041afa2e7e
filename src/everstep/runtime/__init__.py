"""Drives runs: `run` is the handle that writes one, `lease` keeps the right to, `aio` is the same without blocking."""
