"""What can be read from a damaged store, and how a new one is built."""
