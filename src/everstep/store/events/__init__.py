"""The events of a store, in commit order."""
