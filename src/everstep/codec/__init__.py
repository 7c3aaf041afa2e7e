"""Converts values to bytes and back: `kinds` knows types, `values` encodes them, `frame` wraps the stored bytes.

`exceptions` and `models` convert exceptions and the classes of typed states, `explain` says why a value cannot be stored.
"""
