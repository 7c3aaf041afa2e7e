"""Converts values to bytes and back: `kinds` knows types, `values` encodes them, `frame` wraps the stored bytes."""
