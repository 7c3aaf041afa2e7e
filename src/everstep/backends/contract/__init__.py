"""What the store asks of a backend. The docstrings are the contract."""
