"""One attempt at a run: what it writes, replays and ends with, and who may drive it."""
