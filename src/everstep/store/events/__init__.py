"""The events of a store, in the order in which they were committed."""
