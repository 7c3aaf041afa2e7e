"""Parts that only async runs have: the order of completions, awaited commits, branches."""
