"""Random histories against a model in plain dicts."""
