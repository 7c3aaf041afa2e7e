"""What can be read from a damaged file, and how a new one is built."""
