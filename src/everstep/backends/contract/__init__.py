"""The protocols that a backend implements. The docstrings are the contract."""
