"""Converts a live state to deltas and trees of chunks, and back. No I/O.

`tracked` records changes, `untracked` finds them in parts that cannot be tracked, `delta_builder` turns both into a delta, `delta` applies
and computes deltas, `tree` builds and reads bases, `view` reads them lazily, `diff` shows changes to people.
"""
