"""One attempt at a run: what it writes, what it replays, how it ends, and which process may execute it."""
