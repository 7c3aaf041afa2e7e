"""The small language of conditions and values: `parser` reads and evaluates it, `values` has its operations."""
