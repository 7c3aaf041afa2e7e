"""A store in memory: the contract in its plainest form, for tests and as a reference."""
