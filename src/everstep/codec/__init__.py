"""Values to bytes and back: `kinds` knows types, `values` encodes them, `frame` wraps what is stored."""
