"""A store in memory: the simplest implementation of the contract, for tests and as a reference. `backend` also has its leases."""
